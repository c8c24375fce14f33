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

// Transitions are the conditions wanted that need an event, in their order: those
// whose status or reason changed, and new ones that are not quiet.
func Transitions(kind string, old, wanted []metav1.Condition) []metav1.Condition {
	var moved []metav1.Condition
	for _, c := range wanted {
		was := meta.FindStatusCondition(old, c.Type)
		switch {
		case was == nil && !condition.Quiet(kind, c):
			moved = append(moved, c)
		case was != nil && (was.Status != c.Status || was.Reason != c.Reason):
			moved = append(moved, c)
		}
	}
	return moved
}

// SameConditions reports whether every condition wanted is stored as wanted.
// Conditions of other owners are ignored.
func SameConditions(old, wanted []metav1.Condition) bool {
	return !slices.ContainsFunc(wanted, func(c metav1.Condition) bool {
		was := meta.FindStatusCondition(old, c.Type)
		return was == nil || was.Status != c.Status || was.Reason != c.Reason ||
			was.Message != c.Message || was.ObservedGeneration != c.ObservedGeneration
	})
}

// ExportUrgent reports whether a change has to be written soon. What other clusters do, and
// may do again soon, can wait: a reader loses nothing if it is written a little later. That
// are changes of Conflict and Available. What concerns the object itself is urgent, and so
// is a condition that is new.
func ExportUrgent(old, wanted []metav1.Condition) bool {
	return urgent(old, wanted, func(_, c metav1.Condition) bool {
		return c.Type == condition.TypeConflict || c.Type == condition.TypeAvailable
	})
}

// ImportUrgent is ExportUrgent for an import: whether it can be used, its clusters, and
// whether there are EndpointSlices, are urgent.
func ImportUrgent(old, wanted mcsv1beta1.ServiceImportStatus) bool {
	return old.EndpointSliceObjects != wanted.EndpointSliceObjects || !slices.Equal(sorted(old.Clusters), sorted(wanted.Clusters)) ||
		urgent(old.Conditions, wanted.Conditions, func(was, c metav1.Condition) bool {
			return c.Type != condition.TypeImportReady || (was.Status == c.Status && was.Reason == c.Reason)
		})
}

func urgent(old, wanted []metav1.Condition, deferrable func(was, c metav1.Condition) bool) bool {
	return slices.ContainsFunc(wanted, func(c metav1.Condition) bool {
		was := meta.FindStatusCondition(old, c.Type)
		return was == nil || !SameConditions(old, []metav1.Condition{c}) && !deferrable(*was, c)
	})
}
