// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// Types of the conditions of a ServiceExport.
const (
	TypeValid    = string(mcsv1beta1.ServiceExportConditionValid)
	TypeReady    = string(mcsv1beta1.ServiceExportConditionReady)
	TypeConflict = string(mcsv1beta1.ServiceExportConditionConflict)
	// TypeAdmitted: whether the policies allow the export as it is stored now.
	TypeAdmitted = "Admitted"
)

// Types of the conditions of a ServiceImport.
const (
	TypeImportReady = string(mcsv1beta1.ServiceImportConditionReady)
	// TypeSourceMissing: an export is missing, and what was imported of it is kept. The
	// condition exists only then.
	TypeSourceMissing = "SourceMissing"
	// TypeFrozen: no property of the import changes, because the export that decides is
	// not read, missing, or gone for less than a minute. The condition exists only then.
	TypeFrozen = "Frozen"
	// TypeTakeoverHeld: another export waits to become the deciding one. The
	// condition exists only then.
	TypeTakeoverHeld = "TakeoverHeld"
)

// TypeAvailable says, on a ServiceExport, whether every cluster in its scope imports
// it; on a ServiceImport, whether every cluster that contributes to it is connected.
// Whether the import can be used in this cluster is in Ready.
const TypeAvailable = "Available"

// Limits of the API: metav1.Condition takes a reason of 1024 characters; a
// message could be longer, but an event's note may not, and carries the same.
const (
	MaxMessage = 1024 // bytes
	MaxReason  = 1024 // bytes
)

// Valid says whether a ServiceExport names a Service that can be exported.
func Valid(reason ValidReason, message string) metav1.Condition {
	return build(kindExport, TypeValid, string(reason), message)
}

// Ready says whether a ServiceExport is published for the clusters in its scope.
func Ready(reason ReadyReason, message string) metav1.Condition {
	return build(kindExport, TypeReady, string(reason), message)
}

// NoConflicts says that the constituent exports agree.
func NoConflicts(message string) metav1.Condition {
	return build(kindExport, TypeConflict, string(mcsv1beta1.ServiceExportReasonNoConflicts), message)
}

// Conflict says that the constituent exports disagree in these respects, each
// named once and in the order of KEP-1645, joined by commas without spaces.
func Conflict(reasons []mcsv1beta1.ServiceExportConditionReason, message string) metav1.Condition {
	sorted := slices.Clone(reasons)
	slices.SortStableFunc(sorted, func(a, b mcsv1beta1.ServiceExportConditionReason) int {
		if byRank := conflictRank(a) - conflictRank(b); byRank != 0 {
			return byRank
		}
		return strings.Compare(string(a), string(b))
	})
	var joined string
	for i, reason := range slices.Compact(sorted) {
		if i > 0 {
			reason = "," + reason
		}
		if len(joined)+len(reason) > MaxReason {
			break
		}
		joined += string(reason)
	}
	c := build(kindExport, TypeConflict, joined, message)
	c.Status = metav1.ConditionTrue // joined reasons are in no table
	return c
}

// Admitted says whether the policies allow a ServiceExport to be published.
func Admitted(reason AdmittedReason, message string) metav1.Condition {
	return build(kindExport, TypeAdmitted, string(reason), message)
}

// ImportReady says whether a ServiceImport can be used in this cluster. Reasons
// beyond those of ImportReason are those of model.Problem.
func ImportReady(reason ImportReason, message string) metav1.Condition {
	return build(kindImport, TypeImportReady, string(reason), message)
}

// Available says whether every cluster in a ServiceExport's scope imports it. A
// reason that is in no table, which a cluster of another version may report,
// becomes ReasonNotImported.
func Available(reason AvailableReason, message string) metav1.Condition {
	if _, known := find(kindExport, TypeAvailable, string(reason)); !known {
		reason = ReasonNotImported
	}
	return build(kindExport, TypeAvailable, string(reason), message)
}

// SourcesAvailable says whether every cluster that contributes to a
// ServiceImport is connected: the worst of their states.
func SourcesAvailable(reason SourceReason, message string) metav1.Condition {
	return build(kindImport, TypeAvailable, string(reason), message)
}

// SourceMissing says that objects are kept of an export that is missing.
func SourceMissing(message string) metav1.Condition {
	return build(kindImport, TypeSourceMissing, ReasonMissing, message)
}

// Frozen says by which source of an import, in which state, its properties are frozen.
func Frozen(state model.SourceState, message string) metav1.Condition {
	return build(kindImport, TypeFrozen, state.String(), message)
}

// TakeoverHeld says that a change of an import waits for a confirmation.
func TakeoverHeld(message string) metav1.Condition {
	return build(kindImport, TypeTakeoverHeld, ReasonTakeoverHeld, message)
}

// build gives the reason the status that it has in the table; False if it is in none.
func build(kind, typ, reason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if entry, known := find(kind, typ, reason); known {
		status = entry.Status
	}
	return metav1.Condition{Type: typ, Status: status, Reason: reason, Message: model.Bound(message, MaxMessage)}
}
