// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Reasons of a ServiceExport's Ready. The API's reason Ready is not used: what
// Comity can vouch for here is that the records stand in the exchange.
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

// ImportReason is a reason of a ServiceImport's Ready.
type ImportReason string

// Reasons of a ServiceImport's Ready.
const (
	ReasonImportReady          = ImportReason(mcsv1beta1.ServiceImportReasonReady)
	ReasonImportPending        = ImportReason(mcsv1beta1.ServiceImportReasonPending)
	ReasonIPFamilyNotSupported = ImportReason(mcsv1beta1.ServiceImportReasonIPFamilyNotSupported)
	ReasonNameTaken            = ImportReason(model.ReasonNameTaken)
	ReasonForeignImport        = ImportReason(model.ReasonForeignImport)
	ReasonTypeChanged          = ImportReason(model.ReasonTypeChanged)
)

// Entry is one reason and what it means.
type Entry struct {
	// Kind and Type say where the reason occurs.
	Kind, Type string
	Status     metav1.ConditionStatus
	Reason     string
	// Meaning is one sentence for the reader of the documentation.
	Meaning string
	// Resting is true for what a condition says when there is nothing to tell.
	// No event marks the start of a life in that state.
	Resting bool
}

const (
	kindExport = mcsv1beta1.ServiceExportKindName
	kindImport = mcsv1beta1.ServiceImportKindName
)

// Table lists every reason, in the order of the conditions and, for Conflict,
// of KEP-1645.
func Table() []Entry {
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	table := []Entry{
		{kindExport, TypeValid, yes, string(ReasonValid), "The Service exists and has a type that can be exported.", true},
		{kindExport, TypeValid, no, string(ReasonNoService), "There is no Service of that name in this cluster.", false},
		{kindExport, TypeValid, no, string(ReasonInvalidServiceType), "The Service is of type ExternalName.", false},
		{kindExport, TypeReady, yes, string(ReasonExported), "The clusters in the export's scope can read it.", false},
		{kindExport, TypeReady, no, string(ReasonPending), "Nothing is known to be wrong, but it is not published yet.", true},
		{kindExport, TypeReady, no, string(ReasonFailed), "It is not published; the message says why.", false},
	}
	for _, c := range conflicts() {
		table = append(table, Entry{kindExport, TypeConflict, yes, string(c.reason), c.meaning, false})
	}
	return append(table, []Entry{
		{kindExport, TypeConflict, no, string(mcsv1beta1.ServiceExportReasonNoConflicts), "The clusters that export the Service agree.", true},
		{kindExport, TypeAdmitted, yes, string(ReasonAdmitted), "Every policy lets the export be published.", true},
		{kindExport, TypeAdmitted, yes, string(ReasonAdmittedWithWarnings), "It may be published, but a policy has something to say.", false},
		{kindExport, TypeAdmitted, no, string(ReasonPolicyDenied), "A policy forbids it; the message names policy, field and remedy.", false},
		{kindExport, TypeAdmitted, unknown, string(ReasonNotEvaluated), "The policies could not be asked; what is published stays.", false},
		{kindImport, TypeImportReady, yes, string(ReasonImportReady), "The name resolves and leads to the exporting clusters.", false},
		{kindImport, TypeImportReady, no, string(ReasonImportPending), "The derived Service or its addresses are not there yet.", true},
		{kindImport, TypeImportReady, no, string(ReasonIPFamilyNotSupported), "This cluster has none of the export's IP families.", false},
		{kindImport, TypeImportReady, no, string(ReasonNameTaken), "An object that is not Comity's has the name of a derived one.", false},
		{kindImport, TypeImportReady, no, string(ReasonForeignImport), "A ServiceImport that Comity did not make is in the way.", false},
		{kindImport, TypeImportReady, no, string(ReasonTypeChanged), "The derived Service is replaced, since headless and not cannot be turned into each other.", false},
	}...)
}

// Resting reports whether c says that there is nothing to tell.
func Resting(kind string, c metav1.Condition) bool {
	return slices.ContainsFunc(Table(), func(e Entry) bool {
		return e.Resting && e.Kind == kind && e.Type == c.Type && e.Status == c.Status && e.Reason == c.Reason
	})
}

type conflictEntry struct {
	reason  mcsv1beta1.ServiceExportConditionReason
	meaning string
}

// conflicts lists the reasons of Conflict=True in the order of KEP-1645.
func conflicts() []conflictEntry {
	return []conflictEntry{
		{mcsv1beta1.ServiceExportReasonPortConflict, "Ports of one name, or of one protocol and number, differ."},
		{mcsv1beta1.ServiceExportReasonTypeConflict, "Some export it headless and others do not."},
		{mcsv1beta1.ServiceExportReasonSessionAffinityConflict, "sessionAffinity differs."},
		{mcsv1beta1.ServiceExportReasonSessionAffinityConfigConflict, "sessionAffinityConfig differs."},
		{mcsv1beta1.ServiceExportReasonLabelsConflict, "spec.exportedLabels differ."},
		{mcsv1beta1.ServiceExportReasonAnnotationsConflict, "spec.exportedAnnotations differ."},
		{mcsv1beta1.ServiceExportReasonInternalTrafficPolicyConflict, "internalTrafficPolicy differs."},
		{mcsv1beta1.ServiceExportReasonTrafficDistributionConflict, "trafficDistribution differs."},
		{mcsv1beta1.ServiceExportReasonIPFamilyConflict, "Which clusters answer depends on the IP family of the client."},
	}
}

// conflictRank orders reasons of Conflict; an unknown one comes last.
func conflictRank(reason mcsv1beta1.ServiceExportConditionReason) int {
	all := conflicts()
	if i := slices.IndexFunc(all, func(c conflictEntry) bool { return c.reason == reason }); i >= 0 {
		return i
	}
	return len(all)
}
