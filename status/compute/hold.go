// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
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
		if len(seen.Unread) == 0 || old.Status != metav1.ConditionTrue {
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
	partial := in.Observation == nil || len(in.Observation.Unread) > 0
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
// problem to tell of that it told of before.
func importIsSettled(in ImportInput, clusters []mcsv1beta1.ClusterStatus) settled {
	isUnread := func(c mcsv1beta1.ClusterStatus) bool {
		return slices.Contains(in.Observation.Unread, model.ClusterID(c.Cluster))
	}
	partial := slices.Equal(sorted(in.Import.Status.Clusters), sorted(clusters)) &&
		(in.Observation == nil || slices.ContainsFunc(in.Import.Status.Clusters, isUnread))
	return func(old, wanted metav1.Condition) bool {
		return !partial || old.ObservedGeneration != in.Import.Generation ||
			old.Status != metav1.ConditionTrue || wanted.Status != metav1.ConditionTrue
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

// stamp sets generation and time. A condition taken over as it was keeps both;
// lastTransitionTime moves only with the status.
func stamp(c *metav1.Condition, old []metav1.Condition, generation int64, now metav1.Time) {
	if !c.LastTransitionTime.IsZero() {
		return
	}
	c.ObservedGeneration = generation
	c.LastTransitionTime = now
	if was := meta.FindStatusCondition(old, c.Type); was != nil && was.Status == c.Status {
		c.LastTransitionTime = was.LastTransitionTime
	}
}

// Transitions are those of the conditions wanted that an event should tell of,
// in their order: status or reason differ from before, or it is new and has
// something to tell.
func Transitions(kind string, old, wanted []metav1.Condition) []metav1.Condition {
	var moved []metav1.Condition
	for _, c := range wanted {
		was := meta.FindStatusCondition(old, c.Type)
		switch {
		case was == nil && !condition.Resting(kind, c):
			moved = append(moved, c)
		case was != nil && (was.Status != c.Status || was.Reason != c.Reason):
			moved = append(moved, c)
		}
	}
	return moved
}

// SameConditions reports whether every condition wanted is there as it should
// be. Conditions of others are none of its business.
func SameConditions(old, wanted []metav1.Condition) bool {
	return !slices.ContainsFunc(wanted, func(c metav1.Condition) bool {
		was := meta.FindStatusCondition(old, c.Type)
		return was == nil || was.Status != c.Status || was.Reason != c.Reason ||
			was.Message != c.Message || was.ObservedGeneration != c.ObservedGeneration
	})
}
