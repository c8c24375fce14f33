// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package condition defines the conditions that Comity sets, and the reasons that each may
// have.
//
// It takes a reason and a message, and gives metav1.Condition values without times, with the
// status that the table has for that reason. It is pure and decides nothing. Valid,
// Ready and Conflict follow KEP-1645 as sigs.k8s.io/mcs-api names it; the rest is ours.
package condition

import (
	"cmp"
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

// What makes the conditions of a ServiceExport, of a reason and a message.
var (
	// Valid says whether a ServiceExport names a Service that can be exported.
	Valid = of(kindExport, TypeValid)
	// Ready says whether a ServiceExport is published for the clusters in its scope.
	Ready = of(kindExport, TypeReady)
	// Admitted says whether the policies allow a ServiceExport to be published.
	Admitted = of(kindExport, TypeAdmitted)
)

// Conflict says in which respects the constituent exports disagree, if they do. The reason
// has those of all conflicts, joined by commas without spaces, of which the first gives the status.
func Conflict(reason, message string) metav1.Condition {
	first, _, _ := strings.Cut(reason, ",")
	c := of(kindExport, TypeConflict)(first, message)
	c.Reason = reason
	return c
}

// Available says whether every cluster in a ServiceExport's scope imports it. A
// reason that is in no table, which a cluster of another version may report,
// becomes ReasonNotImported.
func Available(reason, message string) metav1.Condition {
	if find(kindExport, TypeAvailable, reason).status == "" {
		reason = ReasonNotImported
	}
	return of(kindExport, TypeAvailable)(reason, message)
}

// What makes the conditions of a ServiceImport.
var (
	// ImportReady says whether a ServiceImport can be used in this cluster. Reasons
	// beyond Ready and Pending are those of model.Problem.
	ImportReady = of(kindImport, TypeImportReady)
	// SourcesAvailable says whether every cluster that contributes to a
	// ServiceImport is connected: the worst of their states.
	SourcesAvailable = of(kindImport, TypeAvailable)
	// SourceMissing says that objects are kept of an export that is missing.
	SourceMissing = of(kindImport, TypeSourceMissing)
	// Frozen says by which source of an import, in which state, its properties are frozen.
	Frozen = of(kindImport, TypeFrozen)
	// TakeoverHeld says that a change of an import waits for a confirmation.
	TakeoverHeld = of(kindImport, TypeTakeoverHeld)
)

// of gives a reason the status that it has in the table; False if it is in none.
func of(kind, typ string) func(reason, message string) metav1.Condition {
	return func(reason, message string) metav1.Condition {
		status := cmp.Or(find(kind, typ, reason).status, no)
		return metav1.Condition{Type: typ, Status: status, Reason: reason, Message: model.Bound(message, MaxMessage)}
	}
}

// Reasons of Valid.
const (
	ReasonValid              = string(mcsv1beta1.ServiceExportReasonValid)
	ReasonNoService          = string(mcsv1beta1.ServiceExportReasonNoService)
	ReasonInvalidServiceType = string(mcsv1beta1.ServiceExportReasonInvalidServiceType)
)

// Reasons of a ServiceExport's Ready, beside Pending. The API's reason Ready is not used:
// Comity only knows that the records are in the exchange.
const (
	ReasonExported = string(mcsv1beta1.ServiceExportReasonExported)
	ReasonFailed   = string(mcsv1beta1.ServiceExportReasonFailed)
)

// Reasons of Admitted, beside PolicyDenied and NotEvaluated.
const (
	ReasonAdmitted             = "Admitted"
	ReasonAdmittedWithWarnings = "AdmittedWithWarnings"
	// ReasonClustersExcluded: policies forbid the export to some clusters only.
	ReasonClustersExcluded = "ClustersExcluded"
)

// Reasons of a ServiceExport's Available, beside Imported, Pending and every reason of
// problems, which the clusters in scope report.
const (
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
	ReasonDrained   = "Drained"
	// ReasonLaterTier: all are connected, and the first tier does not serve.
	ReasonLaterTier = "LaterTier"
	ReasonLost      = "Lost"
	ReasonWithdrawn = "Withdrawn"
)

const (
	kindExport = mcsv1beta1.ServiceExportKindName
	kindImport = mcsv1beta1.ServiceImportKindName
)

const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown

// attention is how much of it a state asks for.
type attention int

const (
	// warns: its event is a warning.
	warns attention = iota
	// news: its event is none.
	news
	// quiet: there is no event either if an object starts in it.
	quiet
)

// row is a status that a condition can have, with its reasons.
type row struct {
	kind, typ string
	status    metav1.ConditionStatus
	attention attention
	reasons   []string
}

// table lists every reason, in the order of docs/conditions.md, which says what each means and
// what to do about it.
var table = []row{
	{kindExport, TypeValid, yes, quiet, []string{ReasonValid}},
	{kindExport, TypeValid, no, warns, []string{ReasonNoService, ReasonInvalidServiceType}},

	{kindExport, TypeReady, yes, news, []string{ReasonExported}},
	{kindExport, TypeReady, no, quiet, []string{model.ReasonPending}},
	{kindExport, TypeReady, no, warns, []string{ReasonFailed}},

	{kindExport, TypeConflict, yes, warns, conflicts},
	{kindExport, TypeConflict, no, quiet, []string{string(mcsv1beta1.ServiceExportReasonNoConflicts)}},

	{kindExport, TypeAdmitted, yes, quiet, []string{ReasonAdmitted}},
	{kindExport, TypeAdmitted, yes, warns, []string{ReasonAdmittedWithWarnings, ReasonClustersExcluded}},
	{kindExport, TypeAdmitted, no, warns, []string{model.ReasonPolicyDenied}},
	{kindExport, TypeAdmitted, unknown, warns, []string{model.ReasonNotEvaluated}},

	{kindExport, TypeAvailable, yes, quiet, []string{model.ReasonImported}},
	{kindExport, TypeAvailable, yes, news, []string{ReasonDecidersDiffer}},
	{kindExport, TypeAvailable, unknown, quiet, []string{model.ReasonPending}},
	{kindExport, TypeAvailable, no, quiet, []string{ReasonNotPublished, ReasonNoDestinations}},
	{kindExport, TypeAvailable, no, warns, problems},

	{kindImport, TypeImportReady, yes, quiet, []string{ReasonImportReady}},
	{kindImport, TypeImportReady, no, quiet, []string{model.ReasonPending}},
	{kindImport, TypeImportReady, no, warns, problemsHere},

	{kindImport, TypeAvailable, yes, quiet, []string{ReasonConnected, ReasonLaterTier, ReasonDrained}},
	{kindImport, TypeAvailable, unknown, quiet, []string{model.ReasonPending}},
	{kindImport, TypeAvailable, no, warns, []string{ReasonLost, ReasonWithdrawn}},

	{kindImport, TypeSourceMissing, yes, warns, []string{model.ReasonMissing}},
	{kindImport, TypeFrozen, yes, warns, []string{string(model.SourceNotRead), string(model.SourceMissing)}},
	{kindImport, TypeFrozen, yes, quiet, []string{string(model.SourceEnded), string(model.SourceSuspended), string(model.SourceRefused)}},
	{kindImport, TypeTakeoverHeld, yes, warns, []string{model.ReasonTakeoverHeld}},
}

// find gives the row of a reason; one without a status if it is in none.
func find(kind, typ, reason string) row {
	found, _ := model.Find(table, func(r row) bool { return r.kind == kind && r.typ == typ && slices.Contains(r.reasons, reason) })
	return found
}

// otherReason replaces, in metrics, a reason that is not in the table, which another
// implementation or user wrote: there may be any number of them.
const otherReason = "Other"

// Reasons are the reasons of a condition as labels of metrics, which are those of Conflict one
// by one; none if Comity has no condition of that type.
func Reasons(kind string, c metav1.Condition) (out []string) {
	if !slices.ContainsFunc(table, func(r row) bool { return r.kind == kind && r.typ == c.Type }) {
		return nil
	}
	for reason := range strings.SplitSeq(c.Reason, ",") {
		if find(kind, c.Type, reason).status != c.Status {
			reason = otherReason
		}
		if !slices.Contains(out, reason) {
			out = append(out, reason)
		}
	}
	return out
}

// Quiet reports whether an object in the state c gets no event if it starts in it, and never a
// warning.
func Quiet(kind string, c metav1.Condition) bool { return attentionOf(kind, c) == quiet }

// Warns reports whether somebody should look at an object in the state c. One that is not in
// the table is that of several conflicts.
func Warns(kind string, c metav1.Condition) bool { return attentionOf(kind, c) == warns }

func attentionOf(kind string, c metav1.Condition) attention {
	if r := find(kind, c.Type, c.Reason); r.status == c.Status {
		return r.attention
	}
	return warns
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
	string(model.ReasonTiersConflict),
	string(mcsv1beta1.ServiceExportReasonIPFamilyConflict),
}

// problems are the causes why a cluster does not import an export, by rank: first those that a
// user can correct. Of several, the one of the highest rank becomes the reason of a condition.
var problems = []string{
	model.ReasonNamespaceMissing, model.ReasonPolicyDenied, model.ReasonNotEvaluated, model.ReasonNamespaceMismatch, model.ReasonNamespaceUnknown,
	model.ReasonNamespaceNotAccepted, model.ReasonNameTaken, model.ReasonForeignImport, model.ReasonAddressOverlap, model.ReasonAddressNotAccepted,
	model.ReasonIPFamilyNotSupported, model.ReasonRefused, model.ReasonLimitExceeded, model.ReasonImportDisabled, model.ReasonInvalidRecord,
	model.ReasonUnreachable, ReasonLost, model.ReasonUnknownCluster, model.ReasonNamespaceReserved, model.ReasonTypeChanged,
	model.ReasonInvalidEndpoints, model.ReasonContested, model.ReasonInvalidAnnotation, model.ReasonTooManyZones, model.ReasonTakeoverHeld,
	model.ReasonSliceMissing, model.ReasonFrozen, ReasonNotImported,
}

// problemsHere are those that an import can have in its own cluster.
var problemsHere = []string{
	model.ReasonNamespaceMismatch, model.ReasonNameTaken, model.ReasonForeignImport, model.ReasonAddressOverlap, model.ReasonAddressNotAccepted,
	model.ReasonIPFamilyNotSupported, model.ReasonRefused, model.ReasonLimitExceeded, model.ReasonTypeChanged, model.ReasonInvalidEndpoints,
	model.ReasonContested, model.ReasonInvalidAnnotation, model.ReasonTooManyZones, model.ReasonSliceMissing,
}

// ProblemRank orders the reasons of problems; an unknown one comes last. That of endpoints that
// do not answer comes first.
func ProblemRank(reason string) int {
	switch i := slices.Index(problems, reason); {
	case reason == ReasonWithdrawn:
		return -1
	case i >= 0:
		return i
	}
	return len(problems)
}
