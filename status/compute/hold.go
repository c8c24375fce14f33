// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

// hold gives the condition wanted, or the stored one of the same generation while the wanted one
// is partial: computed before all that it may be about was read since the process started.
// After a restart peers are read one by one; without this a conflict or a warning would be
// cleared and set again each time. What is worse than the stored one replaces it at once, and so
// does anything one that says that nothing was to be said yet.
func hold(kind string, old []metav1.Condition, wanted metav1.Condition, generation int64, partial bool) metav1.Condition {
	was := meta.FindStatusCondition(old, wanted.Type)
	saysNothing := was == nil || was.Status != metav1.ConditionTrue && condition.Quiet(kind, *was)
	if !partial || saysNothing || was.ObservedGeneration != generation || isWorse(kind, *was, wanted) {
		return wanted
	}
	return *was
}

func isWorse(kind string, was, wanted metav1.Condition) bool {
	return wanted.Status != metav1.ConditionUnknown && condition.Warns(kind, wanted) &&
		(!condition.Warns(kind, was) || condition.ProblemRank(wanted.Reason) < condition.ProblemRank(was.Reason))
}

// reasonOf is the stored reason of a condition; empty if there is none.
func reasonOf(old []metav1.Condition, typ string) string {
	return ptr.Deref(meta.FindStatusCondition(old, typ), metav1.Condition{}).Reason
}

// unanswered reports whether no policy was evaluated: the engine has not loaded
// any yet, or the facts could not be read.
func unanswered(verdict decision.Verdict) bool {
	return verdict.Outcome == decision.NotEvaluated && verdict.Digest == ""
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
	return sameSources(old, wanted) && SameConditions(old.Conditions, wanted.Conditions) && len(WithoutSurplus(old, wanted).Conditions) == len(old.Conditions)
}

// WithoutSurplus is old without the clusters, and the conditions that a ServiceImport does not
// always have, that are not wanted.
func WithoutSurplus(old, wanted mcsv1beta1.ServiceImportStatus) mcsv1beta1.ServiceImportStatus {
	old.Clusters = model.Without(old.Clusters, func(c mcsv1beta1.ClusterStatus) bool { return !slices.Contains(wanted.Clusters, c) })
	old.Conditions = model.Without(old.Conditions, func(c metav1.Condition) bool {
		return slices.Contains(occasional, c.Type) && meta.FindStatusCondition(wanted.Conditions, c.Type) == nil
	})
	return old
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
