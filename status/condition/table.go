// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// Entry is one reason and what it means.
type Entry struct {
	// Kind and Type are those of the condition that can have the reason.
	Kind, Type string
	Status     metav1.ConditionStatus
	Reason     string
	// Meaning and Remedy are for the reader of the documentation: what it
	// means, and what to do about it; no remedy where nothing is to be done.
	Meaning, Remedy string
	// Quiet is true of a state that gets no event if an object starts in it, and
	// never a warning.
	Quiet bool
}

const (
	kindExport = mcsv1beta1.ServiceExportKindName
	kindImport = mcsv1beta1.ServiceImportKindName
)

const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown

// Table lists every reason, in the order of the conditions and, for Conflict,
// of KEP-1645. docs/conditions.md is made of it.
func Table() []Entry { return slices.Clone(table) }

var table = slices.Concat(exportTable(), conflictTable(), admittedTable(), availableTable(), importTable(), sourceTable())

// find gives the entry of a reason; false if it is in no table.
func find(kind, typ, reason string) (Entry, bool) {
	i := slices.IndexFunc(table, func(e Entry) bool { return e.Kind == kind && e.Type == typ && e.Reason == reason })
	if i < 0 {
		return Entry{}, false
	}
	return table[i], true
}

func exportTable() []Entry {
	return []Entry{
		{kindExport, TypeValid, yes, ReasonValid, "The Service exists and has a type that can be exported.", "", true},
		{kindExport, TypeValid, no, ReasonNoService, "There is no Service of that name in this cluster.", "Create the Service or delete the ServiceExport.", false},
		{kindExport, TypeValid, no, ReasonInvalidServiceType, "The Service is of type ExternalName, or is itself an import of another Service.", "Give the Service another type, export the original Service, or delete the ServiceExport.", false},
		{kindExport, TypeReady, yes, ReasonExported, "It is published, and the clusters in its scope can read it.", "", false},
		{kindExport, TypeReady, no, ReasonPending, "No problem is known, but it is not published yet.", "", true},
		{kindExport, TypeReady, no, ReasonFailed, "It is not published; the message says why.", "Follow the message.", false},
	}
}

func conflictTable() []Entry {
	const remedy = "Give the Service the same properties in the clusters that the message names; until then the values of the oldest export are used."
	var table []Entry
	for _, c := range conflicts() {
		table = append(table, Entry{kindExport, TypeConflict, yes, c.reason, c.meaning, remedy, false})
	}
	return append(table, Entry{
		kindExport, TypeConflict, no, string(mcsv1beta1.ServiceExportReasonNoConflicts), "The clusters that export the Service agree.", "", true,
	})
}

func admittedTable() []Entry {
	return []Entry{
		{kindExport, TypeAdmitted, yes, ReasonAdmitted, "Every policy lets the export be published.", "", true},
		{kindExport, TypeAdmitted, yes, ReasonAdmittedWithWarnings, "It may be published, but a policy warns.", "Read the message.", false},
		{kindExport, TypeAdmitted, yes, ReasonClustersExcluded, "A policy forbids it for some clusters only; the message names these clusters, the policy, the field and the remedy. It is published to the other clusters.", "Follow the message, or leave these clusters out of comity.dev/export-to.", false},
		{kindExport, TypeAdmitted, no, ReasonPolicyDenied, "A policy forbids it; the message names the policy, the field and the remedy. If it is still published, the message says when it will be withdrawn.", "Follow the message, or ask for another policy.", false},
		{kindExport, TypeAdmitted, unknown, ReasonNotEvaluated, "The policies could not be evaluated; what is published stays.", "Check in the status of each ExportPolicy whether it compiled.", false},
	}
}

func availableTable() []Entry {
	table := []Entry{
		{kindExport, TypeAvailable, yes, ReasonImported, "Every cluster in scope imports it.", "", true},
		{kindExport, TypeAvailable, yes, ReasonDecidersDiffer, "Every cluster in scope imports it, but not the same export decides the import in all of them, because their lists formed at another time. Where the exports agree, this changes nothing.", "Make the exports agree, or run kubectl comity confirm takeover in the clusters that the message names.", false},
		{kindExport, TypeAvailable, unknown, ReasonPending, "No problem is known, but not every cluster in scope has reported yet.", "", true},
		{kindExport, TypeAvailable, no, ReasonNotPublished, "It is not published, so no cluster can import it.", "See the condition Ready.", true},
		{kindExport, TypeAvailable, no, ReasonNoDestinations, "No other cluster is in its scope.", "Join a cluster, or widen comity.dev/export-to.", true},
	}
	for _, p := range problems() {
		table = append(table, Entry{kindExport, TypeAvailable, no, p.reason, p.meaning, p.remedy, false})
	}
	return table
}

// importTable has those problems that an import can have in its own cluster.
func importTable() []Entry {
	table := []Entry{
		{kindImport, TypeImportReady, yes, ReasonImportReady, "The clusterset name resolves, and traffic reaches the exporting clusters.", "", false},
		{kindImport, TypeImportReady, no, ReasonPending, "The derived Service or its addresses do not exist yet, or it is not known yet which clusters export the Service.", "", true},
	}
	here := []string{
		model.ReasonNameTaken, model.ReasonForeignImport, model.ReasonAddressOverlap, model.ReasonAddressNotAccepted, model.ReasonIPFamilyNotSupported,
		model.ReasonRefused, model.ReasonTypeChanged, model.ReasonInvalidEndpoints, model.ReasonContested, model.ReasonInvalidAnnotation, model.ReasonLimitExceeded, model.ReasonTooManyZones,
		model.ReasonNamespaceMismatch, model.ReasonSliceMissing,
	}
	for _, p := range problems() {
		if slices.Contains(here, p.reason) {
			table = append(table, Entry{kindImport, TypeImportReady, no, p.reason, p.meaning, p.remedy, false})
		}
	}
	return table
}

func sourceTable() []Entry {
	return []Entry{
		{kindImport, TypeAvailable, yes, ReasonConnected, "Every cluster that exports the Service is connected.", "", true},
		{kindImport, TypeAvailable, unknown, ReasonPending, "It is not known yet whether every cluster that exports the Service is connected.", "", true},
		{kindImport, TypeAvailable, unknown, ReasonStale, "A cluster has sent no heartbeat for a while; its endpoints stay in use.", "Check that Comity runs there and that its API server can be reached from here.", false},
		{kindImport, TypeAvailable, no, ReasonLost, "A cluster has sent no heartbeat for a long time; its endpoints stay in use as long as they answer a TCP probe.", "Bring the cluster back, or remove it from the clusterset.", false},
		{kindImport, TypeAvailable, no, ReasonWithdrawn, "A cluster is lost and its endpoints do not answer a TCP probe; they get no traffic until the heartbeat or the endpoints return.", "Bring the cluster back, or remove it; comity.dev/on-lost sets what happens to its endpoints.", false},
		{kindImport, TypeSourceMissing, yes, model.ReasonMissing, "The export of a cluster is missing, and the cluster did not withdraw it: its record was lost. What was imported from it is kept, and its endpoints are probed.", "Restore what the message names (kubectl comity join restores exchange namespaces), or run kubectl comity confirm missing with the cluster.", false},
		{kindImport, TypeFrozen, yes, model.SourceNotRead.String(), "The export that decides the import is of a cluster that is not read. No property of the import changes.", "Connect the cluster again; if it is gone for good, run kubectl comity leave --id with it, or kubectl comity confirm takeover for another cluster.", false},
		{kindImport, TypeFrozen, yes, model.SourceMissing.String(), "The export that decides the import is missing. No property of the import changes.", "Restore the export, or run kubectl comity confirm missing with the cluster, or kubectl comity confirm takeover for another cluster.", false},
		{kindImport, TypeFrozen, yes, model.SourceEnded.String(), "The export that decides the import was deleted less than a minute ago. Then the next export decides.", "", true},
		{kindImport, TypeFrozen, yes, model.SourceSuspended.String(), "The export that decides the import was withdrawn less than a minute ago, and its ServiceExport exists. Then the next export decides.", "", true},
		{kindImport, TypeFrozen, yes, model.SourceRefused.String(), "The export that decides the import is refused here since less than a minute ago. Then the next export decides.", "", true},
		{kindImport, TypeTakeoverHeld, yes, model.ReasonTakeoverHeld, "An export that claims to be older than the one that decides would change the import. Nothing changes until an administrator confirms it.", "Run the command in the message if the change is right; if not, ask the administrator of the cluster that it names.", false},
	}
}

// Quiet reports whether the state of c is a quiet one; see Entry.
func Quiet(kind string, c metav1.Condition) bool {
	e, _ := find(kind, c.Type, c.Reason)
	return e.Quiet && e.Status == c.Status
}

// conflicts lists the reasons of Conflict=True in the order of KEP-1645.
func conflicts() []problem {
	return []problem{
		{reason: string(mcsv1beta1.ServiceExportReasonPortConflict), meaning: "Ports with the same name, or with the same protocol and number, differ."},
		{reason: string(mcsv1beta1.ServiceExportReasonTypeConflict), meaning: "The Service is headless in some clusters and not in others."},
		{reason: string(mcsv1beta1.ServiceExportReasonSessionAffinityConflict), meaning: "sessionAffinity differs."},
		{reason: string(mcsv1beta1.ServiceExportReasonSessionAffinityConfigConflict), meaning: "sessionAffinityConfig differs."},
		{reason: string(mcsv1beta1.ServiceExportReasonLabelsConflict), meaning: "spec.exportedLabels differ."},
		{reason: string(mcsv1beta1.ServiceExportReasonAnnotationsConflict), meaning: "spec.exportedAnnotations differ."},
		{reason: string(mcsv1beta1.ServiceExportReasonInternalTrafficPolicyConflict), meaning: "internalTrafficPolicy differs."},
		{reason: string(mcsv1beta1.ServiceExportReasonTrafficDistributionConflict), meaning: "trafficDistribution differs."},
		{reason: string(mcsv1beta1.ServiceExportReasonIPFamilyConflict), meaning: "The IP families differ, so the IP family of a client determines which clusters it reaches."},
	}
}
