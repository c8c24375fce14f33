// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package condition

import (
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// ValidReason is a reason of Valid.
type ValidReason mcsv1beta1.ServiceExportConditionReason

// Reasons of Valid.
const (
	ReasonValid              = ValidReason(mcsv1beta1.ServiceExportReasonValid)
	ReasonNoService          = ValidReason(mcsv1beta1.ServiceExportReasonNoService)
	ReasonInvalidServiceType = ValidReason(mcsv1beta1.ServiceExportReasonInvalidServiceType)
)

// ReadyReason is a reason of a ServiceExport's Ready.
type ReadyReason mcsv1beta1.ServiceExportConditionReason

// Reasons of a ServiceExport's Ready. The API's reason Ready is not used:
// Comity only knows that the records are in the exchange.
const (
	ReasonExported = ReadyReason(mcsv1beta1.ServiceExportReasonExported)
	ReasonPending  = ReadyReason(mcsv1beta1.ServiceExportReasonPending)
	ReasonFailed   = ReadyReason(mcsv1beta1.ServiceExportReasonFailed)
)

// AdmittedReason is a reason of Admitted.
type AdmittedReason string

// Reasons of Admitted.
const (
	ReasonAdmitted             AdmittedReason = "Admitted"
	ReasonAdmittedWithWarnings AdmittedReason = "AdmittedWithWarnings"
	ReasonPolicyDenied         AdmittedReason = "PolicyDenied"
	ReasonNotEvaluated         AdmittedReason = "NotEvaluated"
)

// AvailableReason is a reason of a ServiceExport's Available. Beside those below
// it has every reason of Problems, which the clusters in scope report.
type AvailableReason string

// Reasons of a ServiceExport's Available.
const (
	ReasonImported         = AvailableReason(model.ReasonImported)
	ReasonAvailablePending = AvailableReason(model.ReasonPending)
	// ReasonNotPublished: no other cluster could import it.
	ReasonNotPublished AvailableReason = "NotPublished"
	// ReasonNoDestinations: no other cluster is in the export's scope.
	ReasonNoDestinations AvailableReason = "NoDestinations"
	// ReasonNotImported replaces a reason that this version does not know, reported
	// by a cluster of another version.
	ReasonNotImported AvailableReason = "NotImported"
)

// ImportReason is a reason of a ServiceImport's Ready.
type ImportReason string

// Reasons of a ServiceImport's Ready.
const (
	ReasonImportReady          = ImportReason(mcsv1beta1.ServiceImportReasonReady)
	ReasonImportPending        = ImportReason(mcsv1beta1.ServiceImportReasonPending)
	ReasonIPFamilyNotSupported = ImportReason(model.ReasonIPFamilyNotSupported)
	ReasonNameTaken            = ImportReason(model.ReasonNameTaken)
	ReasonForeignImport        = ImportReason(model.ReasonForeignImport)
	ReasonTypeChanged          = ImportReason(model.ReasonTypeChanged)
	ReasonRefused              = ImportReason(model.ReasonRefused)
	ReasonAddressOverlap       = ImportReason(model.ReasonAddressOverlap)
	ReasonAddressNotAccepted   = ImportReason(model.ReasonAddressNotAccepted)
	ReasonInvalidEndpoints     = ImportReason(model.ReasonInvalidEndpoints)
	ReasonContested            = ImportReason(model.ReasonContested)
	ReasonTooManyZones         = ImportReason(model.ReasonTooManyZones)
	ReasonInvalidAnnotation    = ImportReason(model.ReasonInvalidAnnotation)
)

// SourceReason is a reason of a ServiceImport's Available: the worst state of a
// cluster that contributes to the import.
type SourceReason string

// Reasons of a ServiceImport's Available.
const (
	ReasonConnected     SourceReason = "Connected"
	ReasonSourcePending              = SourceReason(model.ReasonPending)
	ReasonStale         SourceReason = "Stale"
	ReasonLost          SourceReason = "Lost"
	ReasonWithdrawn     SourceReason = "Withdrawn"
)

// ReasonDeletionHeld is the one reason of DeletionHeld.
const ReasonDeletionHeld = "DeletionHeld"

// problem is a cause why a cluster does not import an export, or why an import
// cannot be used.
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
		{string(ReasonPolicyDenied), "A policy of the importing cluster forbids it.", "Follow the message, or ask the administrator of that cluster."},
		{model.ReasonNameTaken, "An object that is not Comity's has the name of a derived one.", "Rename or delete the object that the message names."},
		{model.ReasonForeignImport, "A ServiceImport of that name exists that Comity did not make.", "Delete it, or let the implementation that made it propagate (--import=false)."},
		{model.ReasonAddressOverlap, "Endpoints of a cluster lie in the importing cluster's own address ranges; they are left out.", "Give the clusters address ranges that do not overlap."},
		{model.ReasonAddressNotAccepted, "Endpoints of a cluster lie outside the ranges accepted from it; they are left out.", "Add the range to comity.dev/accepted-cidrs on the Secret that the message names, if it is right."},
		{model.ReasonIPFamilyNotSupported, "The importing cluster has none of the export's IP families.", "Export the Service with a family that the cluster has."},
		{model.ReasonRefused, "The importing cluster's API server does not accept a derived object.", "Read in the message what refuses it: a quota, an admission policy, a limit."},
		{model.ReasonImportDisabled, "The cluster runs Comity without importing; another implementation propagates there.", "Check the ServiceImport there, or run Comity with --import=true."},
		{model.ReasonInvalidRecord, "The importing cluster refuses what the exporting one published.", "Run the same version of Comity in both clusters; the message names the field."},
		{model.ReasonUnreachable, "The cluster sends no heartbeat and has not reported since Comity started here.", "Check the events on the cluster's peer Secret, and whether its API server can be reached."},
		{string(ReasonStale), "The cluster has sent no heartbeat for a while; its last report may be out of date.", "Check that Comity runs there and that its API server can be reached from here."},
		{string(ReasonLost), "The cluster has sent no heartbeat for a long time; it may be gone.", "Bring it back, or remove it from the clusterset with kubectl comity leave."},
		{model.ReasonUnknownCluster, "The export names a cluster that is no peer of this one.", "Join the cluster, or correct comity.dev/export-to."},
		{model.ReasonNamespaceReserved, "Nothing is imported into a namespace of Kubernetes or Comity.", "Move the Service to another namespace."},
		{model.ReasonTypeChanged, "The derived Service is replaced: a Service cannot change between headless and not, nor its first IP family.", "Wait; if this stays, find out what keeps the old Service from being deleted."},
		{model.ReasonInvalidEndpoints, "Endpoints of a cluster are malformed, or have addresses that no pod can have; they are left out.", "Correct the EndpointSlices in the cluster that the message names."},
		{model.ReasonContested, "Another client keeps changing a derived object back.", "Stop the client that the message names from writing it."},
		{model.ReasonInvalidAnnotation, "An annotation of Comity's is not valid; its default applies.", "Correct the annotation that the message names."},
		{model.ReasonTooManyZones, "The cluster has more zones than an endpoint can be hinted to; in some, local endpoints are not preferred.", "Nothing, or leave comity.dev/prefer off."},
		{string(ReasonNotImported), "The cluster does not import it, for a reason that this version does not know.", "Read the message; upgrade Comity here."},
	}
}

// ProblemRank orders the reasons of problems; an unknown one comes last.
func ProblemRank(reason string) int {
	all := problems()
	for i, p := range all {
		if p.reason == reason {
			return i
		}
	}
	return len(all)
}
