// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"cmp"
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

// MaxMessage is the maximal length of a message in bytes. metav1.Condition allows more, but
// the note of an event, which carries the same, does not.
const MaxMessage = model.MaxEventNote

// Valid says whether a ServiceExport names a Service that can be exported.
func Valid(reason, message string) metav1.Condition {
	return build(kindExport, TypeValid, reason, message)
}

// Ready says whether a ServiceExport is published for the clusters in its scope.
func Ready(reason, message string) metav1.Condition {
	return build(kindExport, TypeReady, reason, message)
}

// NoConflicts says that the constituent exports agree.
func NoConflicts(message string) metav1.Condition {
	return build(kindExport, TypeConflict, string(mcsv1beta1.ServiceExportReasonNoConflicts), message)
}

// Conflict says in which respects the constituent exports disagree. The reason has
// those of all conflicts, joined by commas without spaces.
func Conflict(found []model.Conflict) metav1.Condition {
	reasons, messages := make([]string, len(found)), make([]string, len(found))
	for i, c := range found {
		reasons[i], messages[i] = string(c.Reason), c.Message
	}
	c := build(kindExport, TypeConflict, strings.Join(reasons, ","), strings.Join(messages, " "))
	c.Status = metav1.ConditionTrue // joined reasons are in no table
	return c
}

// Admitted says whether the policies allow a ServiceExport to be published.
func Admitted(reason, message string) metav1.Condition {
	return build(kindExport, TypeAdmitted, reason, message)
}

// ImportReady says whether a ServiceImport can be used in this cluster. Reasons
// beyond Ready and Pending are those of model.Problem.
func ImportReady(reason, message string) metav1.Condition {
	return build(kindImport, TypeImportReady, reason, message)
}

// Available says whether every cluster in a ServiceExport's scope imports it. A
// reason that is in no table, which a cluster of another version may report,
// becomes ReasonNotImported.
func Available(reason, message string) metav1.Condition {
	if find(kindExport, TypeAvailable, reason).status == "" {
		reason = ReasonNotImported
	}
	return build(kindExport, TypeAvailable, reason, message)
}

// SourcesAvailable says whether every cluster that contributes to a
// ServiceImport is connected: the worst of their states.
func SourcesAvailable(reason, message string) metav1.Condition {
	return build(kindImport, TypeAvailable, reason, message)
}

// SourceMissing says that objects are kept of an export that is missing.
func SourceMissing(message string) metav1.Condition {
	return build(kindImport, TypeSourceMissing, model.ReasonMissing, message)
}

// Frozen says by which source of an import, in which state, its properties are frozen.
func Frozen(state model.SourceState, message string) metav1.Condition {
	return build(kindImport, TypeFrozen, state.String(), message)
}

// TakeoverHeld says that a change of an import waits for a confirmation.
func TakeoverHeld(message string) metav1.Condition {
	return build(kindImport, TypeTakeoverHeld, model.ReasonTakeoverHeld, message)
}

// build gives the reason the status that it has in the table; False if it is in none.
func build(kind, typ, reason, message string) metav1.Condition {
	status := cmp.Or(find(kind, typ, reason).status, no)
	return metav1.Condition{Type: typ, Status: status, Reason: reason, Message: model.Bound(message, MaxMessage)}
}

// Reasons of Valid.
const (
	ReasonValid              = string(mcsv1beta1.ServiceExportReasonValid)
	ReasonNoService          = string(mcsv1beta1.ServiceExportReasonNoService)
	ReasonInvalidServiceType = string(mcsv1beta1.ServiceExportReasonInvalidServiceType)
)

// Reasons of a ServiceExport's Ready. The API's reason Ready is not used:
// Comity only knows that the records are in the exchange.
const (
	ReasonExported = string(mcsv1beta1.ServiceExportReasonExported)
	ReasonPending  = model.ReasonPending
	ReasonFailed   = string(mcsv1beta1.ServiceExportReasonFailed)
)

// Reasons of Admitted.
const (
	ReasonAdmitted             = "Admitted"
	ReasonAdmittedWithWarnings = "AdmittedWithWarnings"
	// ReasonClustersExcluded: policies forbid the export to some clusters only.
	ReasonClustersExcluded = "ClustersExcluded"
	ReasonPolicyDenied     = model.ReasonPolicyDenied
	ReasonNotEvaluated     = model.ReasonNotEvaluated
)

// Reasons of a ServiceExport's Available, beside Pending and every reason of problems,
// which the clusters in scope report.
const (
	ReasonImported = model.ReasonImported
	// ReasonDecidersDiffer: every cluster in scope imports it, but not the same export
	// decides the import in all of them.
	ReasonDecidersDiffer = "DecidersDiffer"
	// ReasonNotPublished: no other cluster could import it.
	ReasonNotPublished = "NotPublished"
	// ReasonNoDestinations: no other cluster is in the export's scope.
	ReasonNoDestinations = "NoDestinations"
	// ReasonNotImported replaces a reason that this version does not know, reported
	// by a cluster of another version.
	ReasonNotImported = "NotImported"
)

// ReasonImportReady is that of a ServiceImport's Ready, beside Pending and the reasons of
// a model.Problem.
const ReasonImportReady = string(mcsv1beta1.ServiceImportReasonReady)

// Reasons of a ServiceImport's Available, beside Pending: the worst state of a
// cluster that contributes to the import.
const (
	ReasonConnected = "Connected"
	ReasonStale     = "Stale"
	ReasonLost      = "Lost"
	ReasonWithdrawn = "Withdrawn"
)
