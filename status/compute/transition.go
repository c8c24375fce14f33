// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/status/condition"
)

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

// Pace says what kinds of change there are between two states of an object. What
// other clusters do, and do again, is calm: a reader loses nothing if it is
// written a little later. What concerns the object's own life is urgent, and so
// is what is said for the first time.
type Pace struct{ Urgent, Calm bool }

// ExportPace takes what Conflict and Available say for calm: it depends on other
// clusters.
func ExportPace(old, wanted []metav1.Condition) Pace {
	return conditionPace(old, wanted, func(_, c metav1.Condition) bool {
		return c.Type == condition.TypeConflict || c.Type == condition.TypeAvailable
	})
}

// ImportPace takes everything for calm but whether the import can be used, whose it
// is, and whether there are slices.
func ImportPace(old, wanted mcsv1beta1.ServiceImportStatus) Pace {
	pace := conditionPace(old.Conditions, wanted.Conditions, func(was, c metav1.Condition) bool {
		return c.Type != condition.TypeImportReady || (was.Status == c.Status && was.Reason == c.Reason)
	})
	if old.EndpointSliceObjects != wanted.EndpointSliceObjects || !slices.Equal(sorted(old.Clusters), sorted(wanted.Clusters)) {
		pace.Urgent = true
	}
	if len(gone(old.Conditions, wanted.Conditions)) > 0 {
		pace.Calm = true
	}
	return pace
}

func conditionPace(old, wanted []metav1.Condition, calm func(was, c metav1.Condition) bool) Pace {
	pace := Pace{}
	for _, c := range wanted {
		switch was := meta.FindStatusCondition(old, c.Type); {
		case was != nil && SameConditions(old, []metav1.Condition{c}):
		case was != nil && calm(*was, c):
			pace.Calm = true
		default:
			pace.Urgent = true
		}
	}
	return pace
}
