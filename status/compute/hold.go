// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

// hold gives the condition wanted, or the stored one while too little is known to
// replace it: isSettled reports whether one that was computed from a partial view may. After
// a restart peers are read one by one; without this a conflict or a warning would be cleared
// and set again each time.
func hold(old []metav1.Condition, wanted metav1.Condition, isSettled func(old, wanted metav1.Condition) bool) metav1.Condition {
	was := meta.FindStatusCondition(old, wanted.Type)
	if was == nil || isSettled(*was, wanted) {
		return wanted
	}
	return *was
}

// unanswered reports whether no policy was evaluated: the engine has not loaded
// any yet, or the facts could not be read.
func unanswered(verdict decision.Verdict) bool {
	return verdict.Outcome == decision.NotEvaluated && verdict.Digest == ""
}

// readinessIsSettled: without an answer of the policies what is published stays,
// so Ready stays True.
func (in ExportInput) readinessIsSettled(old, wanted metav1.Condition) bool {
	return !unanswered(in.Verdict) ||
		old.ObservedGeneration != in.Export.Generation ||
		old.Status != metav1.ConditionTrue ||
		wanted.Reason != model.ReasonPending ||
		in.Observation.Publication != model.PublicationPending
}

// conflictIsSettled: while peers are being connected to, a stored conflict is neither cleared
// nor shortened. A new kind of conflict is reported at once.
func (in ExportInput) conflictIsSettled(old, wanted metav1.Condition) bool {
	if len(in.Observation.Starting) == 0 || old.Status != metav1.ConditionTrue || takesNoPart(in.Observation) {
		return true
	}
	known := strings.Split(old.Reason, ",")
	return slices.ContainsFunc(strings.Split(wanted.Reason, ","), func(reason string) bool {
		return wanted.Status == metav1.ConditionTrue && !slices.Contains(known, reason)
	})
}

// admissionIsSettled: a verdict on the same generation stays until the policies
// are loaded, and its warnings stay while a peer that they may be about is being connected to.
// A refusal, also one for some clusters, replaces it, unless it was one before: as long as
// it is not known whether the export is still published, the message may say when it
// will be withdrawn.
func (in ExportInput) admissionIsSettled(old, _ metav1.Condition) bool {
	partial := in.Observation == nil || len(in.Observation.Starting) > 0
	switch {
	case old.ObservedGeneration != in.Export.Generation:
		return true
	case unanswered(in.Verdict):
		return false
	case in.Verdict.Outcome == decision.Allowed && len(in.Verdict.Excluded) == 0 && partial:
		return old.Reason != condition.ReasonAdmittedWithWarnings
	case in.Verdict.Outcome == decision.Denied && in.Observation == nil:
		return old.Reason != model.ReasonPolicyDenied
	}
	return true
}

// readinessIsSettled: while the sync loop has no result, or a source cluster is
// unsynced, the problems of an import are not known. With the same source clusters
// and status, the stored condition stays: it may name problems. An import that
// such a problem kept from being used does not become Pending either.
func (in ImportInput) readinessIsSettled(old, wanted metav1.Condition) bool {
	isUnsynced := func(c mcsv1beta1.ClusterStatus) bool {
		return slices.Contains(in.Observation.Unsynced, model.ClusterID(c.Cluster))
	}
	partial := slices.Equal(sorted(in.Import.Status.Clusters), sorted(in.clusters)) &&
		(in.Observation == nil || slices.ContainsFunc(in.Import.Status.Clusters, isUnsynced))
	return !partial || old.ObservedGeneration != in.Import.Generation || old.Status != wanted.Status ||
		old.Status != metav1.ConditionTrue && wanted.Reason != model.ReasonPending
}

// present are the stored conditions of these types.
func present(old []metav1.Condition, types ...string) []metav1.Condition {
	var found []metav1.Condition
	for _, typ := range types {
		if c := meta.FindStatusCondition(old, typ); c != nil {
			found = append(found, *c)
		}
	}
	return found
}

// availabilityIsSettled: a cluster in scope that is unsynced has not repeated its
// report yet. Until then the stored condition is replaced only if another cluster
// has a problem of higher rank.
func (in ExportInput) availabilityIsSettled(old, wanted metav1.Condition) bool {
	switch {
	case old.ObservedGeneration != in.Export.Generation, old.Status == metav1.ConditionUnknown:
		return true
	case old.Reason == condition.ReasonNotPublished, old.Reason == condition.ReasonNoDestinations, wanted.Reason == condition.ReasonNotPublished:
		return true // no report is repeated
	case in.Observation.Publication == model.PublicationPending:
		return false // as Ready does
	case !slices.ContainsFunc(in.Destinations, func(d model.Report) bool { return d.Unsynced }):
		return true
	}
	return wanted.Status == metav1.ConditionFalse &&
		(old.Status == metav1.ConditionTrue || condition.ProblemRank(wanted.Reason) < condition.ProblemRank(old.Reason))
}

// sourcesAreSettled: while a source is unsynced, and its state may still be as bad
// as the stored reason, only a worse reason replaces that.
func (in ImportInput) sourcesAreSettled(old, wanted metav1.Condition) bool {
	worse := sourceRank(old.Reason)
	doubtful := slices.ContainsFunc(in.Observation.Sources, func(s model.Source) bool {
		return slices.Contains(in.Observation.Unsynced, s.Cluster) && sourceRank(sourceReason(s)) < worse
	})
	if doubtful {
		return sourceRank(wanted.Reason) > worse
	}
	return old.ObservedGeneration != in.Import.Generation || !equalButForTimes(old, wanted)
}

// localTimes are the times in the message of a ServiceImport's Available. A process knows only those since its start.
var localTimes = regexp.MustCompile(` \(since [^)]*\)`)

// equalButForTimes reports whether the conditions differ in localTimes alone. Then
// the stored times are right, and a restart writes nothing. It compares whole
// messages and takes nothing from them.
func equalButForTimes(old, wanted metav1.Condition) bool {
	return old.Status == wanted.Status && old.Reason == wanted.Reason &&
		localTimes.ReplaceAllString(old.Message, "") == localTimes.ReplaceAllString(wanted.Message, "")
}

// moved reports whether a condition has another status or reason than before.
func moved(was, c metav1.Condition) bool { return was.Status != c.Status || was.Reason != c.Reason }

// Transitions are the conditions wanted that need an event, in their order: those
// whose status or reason changed, and new ones that are not quiet.
func Transitions(kind string, old, wanted []metav1.Condition) []metav1.Condition {
	return model.Without(wanted, func(c metav1.Condition) bool {
		was := meta.FindStatusCondition(old, c.Type)
		if was == nil {
			return condition.Quiet(kind, c)
		}
		return !moved(*was, c)
	})
}

// SameConditions reports whether every condition wanted is stored as wanted.
// Conditions of other owners are ignored.
func SameConditions(old, wanted []metav1.Condition) bool {
	return !slices.ContainsFunc(wanted, func(c metav1.Condition) bool {
		was := meta.FindStatusCondition(old, c.Type)
		return was == nil || moved(*was, c) || was.Message != c.Message || was.ObservedGeneration != c.ObservedGeneration
	})
}

// SameImport reports whether the status is as it should be, conditions of
// others aside.
func SameImport(old, wanted mcsv1beta1.ServiceImportStatus) bool {
	return sameSources(old, wanted) && SameConditions(old.Conditions, wanted.Conditions) && !slices.ContainsFunc(occasional, func(typ string) bool {
		return meta.FindStatusCondition(old.Conditions, typ) != nil && meta.FindStatusCondition(wanted.Conditions, typ) == nil
	})
}

// Covers reports whether all of wanted is in old, among what others put there.
func Covers(old, wanted mcsv1beta1.ServiceImportStatus) bool {
	return sets.New(old.Clusters...).HasAll(wanted.Clusters...) && SameConditions(old.Conditions, wanted.Conditions)
}

// sorted lists the clusters in order: the list is a map to the API server,
// which need not keep the order in which it was applied.
func sorted(entries []mcsv1beta1.ClusterStatus) []string {
	ids := model.Map(entries, func(entry mcsv1beta1.ClusterStatus) string { return entry.Cluster })
	slices.Sort(ids)
	return ids
}

// sameSources reports whether the import has the same clusters, and EndpointSlices as before.
func sameSources(old, wanted mcsv1beta1.ServiceImportStatus) bool {
	return old.EndpointSliceObjects == wanted.EndpointSliceObjects && slices.Equal(sorted(old.Clusters), sorted(wanted.Clusters))
}

// Urgent reports whether a change has to be written soon. What other clusters do, and
// may do again soon, can wait: a reader loses nothing if it is written a little later. That
// are changes of Conflict and Available. What concerns the object itself is urgent, and so
// is a condition that is new; other words for the same reason are not.
func Urgent(old, wanted []metav1.Condition) bool {
	return slices.ContainsFunc(wanted, func(c metav1.Condition) bool {
		was := meta.FindStatusCondition(old, c.Type)
		isOfObject := slices.Contains([]string{condition.TypeValid, condition.TypeReady, condition.TypeAdmitted}, c.Type)
		return was == nil || isOfObject && moved(*was, c)
	})
}

// ImportUrgent is Urgent for an import: its clusters, and whether there are EndpointSlices, are
// urgent, too.
func ImportUrgent(old, wanted mcsv1beta1.ServiceImportStatus) bool {
	return !sameSources(old, wanted) || Urgent(old.Conditions, wanted.Conditions)
}
