// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

const (
	kindExport = mcsv1beta1.ServiceExportKindName
	kindImport = mcsv1beta1.ServiceImportKindName
)

const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown

// A state that is quiet gets no event if an object starts in it, and never a warning.
const quiet, loud = true, false

// row is a status that a condition can have, with its reasons.
type row struct {
	kind, typ string
	status    metav1.ConditionStatus
	quiet     bool
	reasons   []string
}

// table lists every reason, in the order of docs/conditions.md, which says what each means and
// what to do about it.
var table = []row{
	{kindExport, TypeValid, yes, quiet, []string{ReasonValid}},
	{kindExport, TypeValid, no, loud, []string{ReasonNoService, ReasonInvalidServiceType}},

	{kindExport, TypeReady, yes, loud, []string{ReasonExported}},
	{kindExport, TypeReady, no, quiet, []string{ReasonPending}},
	{kindExport, TypeReady, no, loud, []string{ReasonFailed}},

	{kindExport, TypeConflict, yes, loud, conflicts},
	{kindExport, TypeConflict, no, quiet, []string{string(mcsv1beta1.ServiceExportReasonNoConflicts)}},

	{kindExport, TypeAdmitted, yes, quiet, []string{ReasonAdmitted}},
	{kindExport, TypeAdmitted, yes, loud, []string{ReasonAdmittedWithWarnings, ReasonClustersExcluded}},
	{kindExport, TypeAdmitted, no, loud, []string{ReasonPolicyDenied}},
	{kindExport, TypeAdmitted, unknown, loud, []string{ReasonNotEvaluated}},

	{kindExport, TypeAvailable, yes, quiet, []string{ReasonImported}},
	{kindExport, TypeAvailable, yes, loud, []string{ReasonDecidersDiffer}},
	{kindExport, TypeAvailable, unknown, quiet, []string{ReasonPending}},
	{kindExport, TypeAvailable, no, quiet, []string{ReasonNotPublished, ReasonNoDestinations}},
	{kindExport, TypeAvailable, no, loud, problems},

	{kindImport, TypeImportReady, yes, loud, []string{ReasonImportReady}},
	{kindImport, TypeImportReady, no, quiet, []string{ReasonPending}},
	{kindImport, TypeImportReady, no, loud, problemsHere},

	{kindImport, TypeAvailable, yes, quiet, []string{ReasonConnected}},
	{kindImport, TypeAvailable, unknown, quiet, []string{ReasonPending}},
	{kindImport, TypeAvailable, unknown, loud, []string{ReasonStale}},
	{kindImport, TypeAvailable, no, loud, []string{ReasonLost, ReasonWithdrawn}},

	{kindImport, TypeSourceMissing, yes, loud, []string{model.ReasonMissing}},
	{kindImport, TypeFrozen, yes, loud, []string{model.SourceNotRead.String(), model.SourceMissing.String()}},
	{kindImport, TypeFrozen, yes, quiet, []string{model.SourceEnded.String(), model.SourceSuspended.String(), model.SourceRefused.String()}},
	{kindImport, TypeTakeoverHeld, yes, loud, []string{model.ReasonTakeoverHeld}},
}

// find gives the row of a reason; one without a status if it is in none.
func find(kind, typ, reason string) row {
	i := slices.IndexFunc(table, func(r row) bool { return r.kind == kind && r.typ == typ && slices.Contains(r.reasons, reason) })
	if i < 0 {
		return row{}
	}
	return table[i]
}

// Quiet reports whether an object in the state c gets no event if it starts in it, and never a
// warning.
func Quiet(kind string, c metav1.Condition) bool {
	r := find(kind, c.Type, c.Reason)
	return r.quiet && r.status == c.Status
}

// BadWhenTrue reports whether something is wrong if a condition of that type is True.
func BadWhenTrue(typ string) bool {
	return slices.Contains([]string{TypeConflict, TypeSourceMissing, TypeFrozen, TypeTakeoverHeld}, typ)
}

// conflicts lists the reasons of Conflict=True in the order of KEP-1645.
var conflicts = []string{
	string(mcsv1beta1.ServiceExportReasonPortConflict),
	string(mcsv1beta1.ServiceExportReasonTypeConflict),
	string(mcsv1beta1.ServiceExportReasonSessionAffinityConflict),
	string(mcsv1beta1.ServiceExportReasonSessionAffinityConfigConflict),
	string(mcsv1beta1.ServiceExportReasonLabelsConflict),
	string(mcsv1beta1.ServiceExportReasonAnnotationsConflict),
	string(mcsv1beta1.ServiceExportReasonInternalTrafficPolicyConflict),
	string(mcsv1beta1.ServiceExportReasonTrafficDistributionConflict),
	string(mcsv1beta1.ServiceExportReasonIPFamilyConflict),
}

// problems are the causes why a cluster does not import an export, by rank: first those that a
// user can correct. Of several, the one of the highest rank becomes the reason of a condition.
var problems = []string{
	model.ReasonNamespaceMissing, model.ReasonPolicyDenied, model.ReasonNotEvaluated, model.ReasonNamespaceMismatch, model.ReasonNamespaceUnknown,
	model.ReasonNamespaceNotAccepted, model.ReasonNameTaken, model.ReasonForeignImport, model.ReasonAddressOverlap, model.ReasonAddressNotAccepted,
	model.ReasonIPFamilyNotSupported, model.ReasonRefused, model.ReasonLimitExceeded, model.ReasonImportDisabled, model.ReasonInvalidRecord,
	model.ReasonUnreachable, ReasonStale, ReasonLost, model.ReasonUnknownCluster, model.ReasonNamespaceReserved, model.ReasonTypeChanged,
	model.ReasonInvalidEndpoints, model.ReasonContested, model.ReasonInvalidAnnotation, model.ReasonTooManyZones, model.ReasonTakeoverHeld,
	model.ReasonSliceMissing, model.ReasonFrozen, ReasonNotImported,
}

// problemsHere are those that an import can have in its own cluster.
var problemsHere = []string{
	model.ReasonNamespaceMismatch, model.ReasonNameTaken, model.ReasonForeignImport, model.ReasonAddressOverlap, model.ReasonAddressNotAccepted,
	model.ReasonIPFamilyNotSupported, model.ReasonRefused, model.ReasonLimitExceeded, model.ReasonTypeChanged, model.ReasonInvalidEndpoints,
	model.ReasonContested, model.ReasonInvalidAnnotation, model.ReasonTooManyZones, model.ReasonSliceMissing,
}

// ProblemRank orders the reasons of problems; an unknown one comes last.
func ProblemRank(reason string) int {
	if i := slices.Index(problems, reason); i >= 0 {
		return i
	}
	return len(problems)
}
