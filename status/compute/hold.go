// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

// settled says whether a condition computed from a partial view may take the
// place of the one that is there.
type settled func(old, wanted metav1.Condition) bool

// hold gives the condition wanted, or the one that is there while the view is
// too partial to replace it. After a restart peers are read one by one; without
// this a conflict or a warning would clear and come back each time.
func hold(old []metav1.Condition, wanted metav1.Condition, replaces settled) metav1.Condition {
	was := meta.FindStatusCondition(old, wanted.Type)
	if was == nil || replaces(*was, wanted) {
		return wanted
	}
	return *was
}

// unanswered reports whether no policy set was asked: the engine has not loaded
// one yet, or the facts could not be read.
func unanswered(verdict decision.Verdict) bool {
	return verdict.Outcome == decision.NotEvaluated && verdict.Digest == ""
}

// readinessIsSettled: without an answer of policy what is published stays, so
// that an export is not called pending which was published before a restart.
func readinessIsSettled(in ExportInput) settled {
	return func(old, wanted metav1.Condition) bool {
		return !unanswered(in.Verdict) ||
			old.ObservedGeneration != in.Export.Generation ||
			old.Status != metav1.ConditionTrue ||
			wanted.Reason != string(condition.ReasonPending) ||
			in.Observation.Publication != model.PublicationPending
	}
}

// conflictIsSettled: while peers are unread, a conflict is not cleared and its
// description not cut down; what is new is told at once.
func conflictIsSettled(seen *model.Observation) settled {
	return func(old, wanted metav1.Condition) bool {
		if len(seen.Unsynced) == 0 || old.Status != metav1.ConditionTrue {
			return true
		}
		if seen.Publication == model.PublicationNone || seen.Publication == model.PublicationWithheld {
			return true // no constituent, whoever else there is
		}
		known := strings.Split(old.Reason, ",")
		return slices.ContainsFunc(strings.Split(wanted.Reason, ","), func(reason string) bool {
			return wanted.Status == metav1.ConditionTrue && !slices.Contains(known, reason)
		})
	}
}

// admissionIsSettled: a verdict on this very generation stays while no policy
// set answered (the engine has not loaded yet), and its warnings stay while the
// peers that they may be about are unread. A refusal always replaces.
func admissionIsSettled(in ExportInput) settled {
	partial := in.Observation == nil || len(in.Observation.Unsynced) > 0
	return func(old, _ metav1.Condition) bool {
		switch {
		case old.ObservedGeneration != in.Export.Generation:
			return true
		case unanswered(in.Verdict):
			return false
		case in.Verdict.Outcome == decision.Allowed && partial:
			return old.Reason != string(condition.ReasonAdmittedWithWarnings)
		}
		return true
	}
}

// importIsSettled: an import that was ready and is, with the same source
// clusters, stays described as it was until the loop has looked at it and each of
// them was read. Before that the loop touches nothing of it, and so has no
// problem to tell of that it told of before. Neither is one that was kept from
// being used called pending for want of that problem.
func importIsSettled(in ImportInput, clusters []mcsv1beta1.ClusterStatus) settled {
	isUnsynced := func(c mcsv1beta1.ClusterStatus) bool {
		return slices.Contains(in.Observation.Unsynced, model.ClusterID(c.Cluster))
	}
	partial := slices.Equal(sorted(in.Import.Status.Clusters), sorted(clusters)) &&
		(in.Observation == nil || slices.ContainsFunc(in.Import.Status.Clusters, isUnsynced))
	return func(old, wanted metav1.Condition) bool {
		return !partial || old.ObservedGeneration != in.Import.Generation || old.Status != wanted.Status ||
			old.Status != metav1.ConditionTrue && wanted.Reason != string(condition.ReasonImportPending)
	}
}

// present are those of the types that are there, as they are.
func present(old []metav1.Condition, types ...string) []metav1.Condition {
	var found []metav1.Condition
	for _, typ := range types {
		if c := meta.FindStatusCondition(old, typ); c != nil {
			found = append(found, *c)
		}
	}
	return found
}

// availabilityIsSettled: while a cluster in scope has not been read since start,
// it has not said what it said before. What stands is replaced only when another
// cluster has a problem that was not told of.
func availabilityIsSettled(in ExportInput) settled {
	return func(old, wanted metav1.Condition) bool {
		if old.ObservedGeneration != in.Export.Generation || old.Status == metav1.ConditionUnknown {
			return true
		}
		if !reports(old) || wanted.Reason == string(condition.ReasonNotPublished) {
			return true // whoever reports what
		}
		if in.Observation.Publication == model.PublicationPending {
			return false // as Ready, which says so
		}
		unheard := slices.ContainsFunc(in.Reports.Destinations, func(d model.Destination) bool {
			return d.Unsynced
		})
		if !unheard {
			return true
		}
		return wanted.Status == metav1.ConditionFalse &&
			(old.Status == metav1.ConditionTrue || condition.ProblemRank(wanted.Reason) < condition.ProblemRank(old.Reason))
	}
}

// reports tells whether Available says what other clusters report.
func reports(c metav1.Condition) bool {
	return c.Reason != string(condition.ReasonNotPublished) && c.Reason != string(condition.ReasonNoDestinations)
}

// sourcesAreSettled: a cluster that was worse off before a restart than it is
// known to be now, and was not read since, is not called better for it.
func sourcesAreSettled(seen *model.Observation, generation int64) settled {
	return func(old, wanted metav1.Condition) bool {
		worse := sourceRank(old.Reason)
		doubtful := slices.ContainsFunc(seen.Sources, func(s model.Source) bool {
			return slices.Contains(seen.Unsynced, s.Cluster) && sourceRank(sourceReason(s)) < worse
		})
		if doubtful {
			return sourceRank(wanted.Reason) > worse
		}
		return old.ObservedGeneration != generation || !equalButForTimes(old, wanted)
	}
}

// localTimes are the times in the message of a ServiceImport's Available. They
// are of this process's clock, and it does not know those before its start.
var localTimes = regexp.MustCompile(` \(since [^)]*\)`)

// equalButForTimes reports whether the conditions differ in localTimes alone.
// Then the older times are right, and a restart writes nothing. It compares whole
// messages and reads nothing out of them.
func equalButForTimes(old, wanted metav1.Condition) bool {
	return old.Status == wanted.Status && old.Reason == wanted.Reason &&
		localTimes.ReplaceAllString(old.Message, "") == localTimes.ReplaceAllString(wanted.Message, "")
}

// holdMayContinue reports whether a hold that DeletionHeld shows may still hold,
// although none is observed: a cluster that it may be about was not read since
// start. A hold keeps its cluster among the sources of the import, so that without
// a memory of this process those are the ones to ask.
func holdMayContinue(in ImportInput) bool {
	about := in.ShownHolds
	if about == nil {
		for _, entry := range in.Import.Status.Clusters {
			about = append(about, model.ClusterID(entry.Cluster))
		}
	}
	return slices.ContainsFunc(about, func(id model.ClusterID) bool { return slices.Contains(in.Observation.Unsynced, id) })
}
