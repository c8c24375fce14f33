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
	if _, known := find(kindExport, TypeAvailable, reason); !known {
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
	status := metav1.ConditionFalse
	if entry, known := find(kind, typ, reason); known {
		status = entry.Status
	}
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

// problem is a cause why a cluster does not import an export, why an import
// cannot be used, or why exports conflict.
type problem struct {
	reason string
	// meaning and remedy are sentences of the documentation, seen from the cluster
	// that has the problem, which is not the exporter.
	meaning, remedy string
}

// problems lists them by rank: first those that a user can correct. Of several
// problems, the one of the highest rank becomes the reason of a condition.
func problems() []problem {
	return []problem{
		{model.ReasonNamespaceMissing, "The importing cluster has no namespace of that name.", "Create the namespace there, or leave the cluster out of comity.dev/export-to."},
		{model.ReasonPolicyDenied, "A policy of the importing cluster, or annotation comity.dev/import-from of the namespace there, forbids it.", "Follow the message, or ask the administrator of that cluster."},
		{model.ReasonNotEvaluated, "The importing cluster could not evaluate its policies for it; what was imported of it stays, and nothing new is imported.", "Ask the administrator of that cluster, who sees in the status of each ExportPolicy whether it compiled."},
		{model.ReasonNamespaceMismatch, "The namespaces of the two clusters have different identity labels.", "Give both the same labels, or rename one of the namespaces."},
		{model.ReasonNamespaceUnknown, "The importing cluster does not know the identity labels of the namespace in the exporting one; what was imported of it stays, and nothing new is imported.", "Select the namespace with --publish-namespaces in the exporting cluster."},
		{model.ReasonNamespaceNotAccepted, "The importing cluster accepts no exports of that namespace from the exporting one.", "Ask the administrator of that cluster, who lists the namespaces in spec.acceptedNamespaces of the Peer."},
		{model.ReasonNameTaken, "An object that Comity did not create has the name of a derived one.", "Rename or delete the object that the message names."},
		{model.ReasonForeignImport, "A ServiceImport of that name exists that Comity did not create.", "Delete it, or let the implementation that created it import Services (--import=false)."},
		{model.ReasonAddressOverlap, "Endpoints of a cluster are in the importing cluster's own address ranges; they are left out.", "Give the clusters address ranges that do not overlap."},
		{model.ReasonAddressNotAccepted, "Endpoints of a cluster are outside the ranges that are accepted from it; they are left out.", "If the addresses are right, add their range to spec.acceptedCIDRs of the Peer that the message names."},
		{model.ReasonIPFamilyNotSupported, "The importing cluster has none of the export's IP families.", "Export the Service with a family that the cluster has."},
		{model.ReasonRefused, "The importing cluster's API server does not accept a derived object.", "The message says what refuses it, such as a quota or an admission policy; change that."},
		{model.ReasonLimitExceeded, "A cluster publishes more, or changes it more often, than the limits of the importing cluster for one member allow; what was imported before stays.", "The message names the limit; reduce what that cluster publishes, or find out why it changes so often."},
		{model.ReasonImportDisabled, "The cluster runs Comity with --import=false; another implementation imports there.", "Check the ServiceImport there, or run Comity with --import=true."},
		{model.ReasonInvalidRecord, "The importing cluster refuses the record that the exporting cluster published.", "Run the same version of Comity in both clusters; the message names the field."},
		{model.ReasonUnreachable, "The cluster sends no heartbeat and has not reported since Comity started here.", "Check the conditions of the cluster's Peer, and whether its API server can be reached."},
		{ReasonStale, "The cluster has sent no heartbeat for a while; its last report may be out of date.", "Check that Comity runs there and that its API server can be reached from here."},
		{ReasonLost, "The cluster has sent no heartbeat for a long time; it may be gone.", "Bring it back, or remove it from the clusterset with kubectl comity leave."},
		{model.ReasonUnknownCluster, "The export names a cluster that is not a peer of this cluster.", "Join the cluster, or correct comity.dev/export-to."},
		{model.ReasonNamespaceReserved, "The namespace belongs to Kubernetes or to Comity; nothing is imported into it.", "Move the Service to another namespace."},
		{model.ReasonTypeChanged, "The derived Service is being replaced, because Kubernetes does not allow a change between headless and not headless, or of the first IP family.", "Wait; if the reason stays, find out what keeps the old Service from being deleted."},
		{model.ReasonInvalidEndpoints, "Endpoints of a cluster are malformed, or have addresses that no pod can have; they are left out.", "Correct the EndpointSlices in the cluster that the message names."},
		{model.ReasonContested, "Another client repeatedly changes a derived object.", "Stop the client that the message names from writing it."},
		{model.ReasonInvalidAnnotation, "A comity.dev annotation is not valid; its default applies.", "Correct the annotation that the message names."},
		{model.ReasonTooManyZones, "The cluster has more zones than an endpoint can have zone hints; in some of the zones, local endpoints are not preferred.", "Accept that, or remove comity.dev/prefer."},
		{model.ReasonTakeoverHeld, "It is imported, but either it or an older export of the same name waits for a confirmation before it decides the properties of the import.", "Give the exports the same properties, or ask the administrator of that cluster to run the command in the condition TakeoverHeld of the ServiceImport there."},
		{model.ReasonSliceMissing, "Copies of EndpointSlices that the exporting cluster published are gone, and the record of the export names them still; what was imported of them is kept.", "Check that Comity runs in the exporting cluster, and its exchange namespaces (kubectl comity join restores them)."},
		{model.ReasonFrozen, "The properties of the import do not change, because the export of another cluster decides them, and that is not read or missing.", "See condition Frozen of the ServiceImport there."},
		{ReasonNotImported, "The cluster does not import it, for a reason that this version does not know.", "Read the message; upgrade Comity here."},
	}
}

// ProblemRank orders the reasons of problems; an unknown one comes last.
func ProblemRank(reason string) int {
	all := problems()
	if i := slices.IndexFunc(all, func(p problem) bool { return p.reason == reason }); i >= 0 {
		return i
	}
	return len(all)
}
