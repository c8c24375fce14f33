// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Report is the report of one cluster about importing one export of another.
type Report struct {
	// Cluster is who reports.
	Cluster ClusterID
	// ExportUID is the ServiceExport that the report is about. It does not apply to
	// a later ServiceExport of the same name.
	ExportUID types.UID
	// Imported is true if the export contributes to an import there.
	Imported bool
	// Reason is ReasonImported; or why it does not, one of the reasons below; or
	// why it is Imported only in part: the reason of a Problem.
	Reason string
	// Message says more, for a reader in the exporting cluster; it names no
	// cluster but the two. Empty if Reason is ReasonImported.
	Message string
	// Since is when Imported or Reason last changed, in the reporter's time.
	Since time.Time
	// Decider is the cluster whose export decides the import there; empty if none does, or
	// if this cluster may not know of it.
	Decider ClusterID
}

// Refusal is an export of a cluster that is not imported here, whatever the others
// export.
type Refusal struct {
	// Cluster is the exporter.
	Cluster ClusterID
	// ExportUID is the ServiceExport that it says it exports.
	ExportUID types.UID
	// Reason is ReasonInvalidRecord or ReasonNamespaceNotAccepted.
	Reason string
	// Field is the first field of its record that is not valid, as a path; empty
	// for another Reason.
	Field string
	// Peer is the name of the Peer whose spec.acceptedNamespaces does not list the
	// namespace; empty for another Reason.
	Peer string
}

// Destination is one cluster in the scope of a local export, and whether it
// imports the export.
type Destination struct {
	Cluster ClusterID
	// Imported is true if that cluster imports the export, according to its last
	// report.
	Imported bool
	// Reason is one word; see the reasons below.
	Reason string
	// Message says what is wrong there and what to do; empty if nothing is.
	Message string
	// Since is when this began; zero if not known.
	Since time.Time
	// Decider is that of Report.
	Decider ClusterID
	// Unsynced is true while the reports of that cluster were not read since this
	// process started; then its Reason is ReasonPending.
	Unsynced bool
}

// Source is one export that the list of an import has, or had, as it was found.
type Source struct {
	Cluster ClusterID
	UID     types.UID
	// State is the row of the import table. Since is since when an export is out or
	// missing; zero otherwise. Why says more, without a period; empty if State says it.
	State    SourceState
	Since    time.Time
	Why      string
	Liveness Liveness
	// Starting is true of a NotRead source whose cluster is being connected to for the first
	// time since this process started: what depends on it is not said anew meanwhile.
	Starting bool
	// Down is true while the cluster's endpoints are marked not ready here, because the
	// cluster is lost and they do not answer either.
	Down bool
}

// Freeze is why no property of an import changes.
type Freeze struct {
	// By is the export that decides.
	By SourceExport
	// State is its row of the import table, Why what Source.Why says.
	State SourceState
	Why   string
	// Waits is true if another export would change the import.
	Waits bool
	// Since is since when; zero if that is not known. At Until the next export decides;
	// zero if no time ends it.
	Since, Until time.Time
}

// Reasons of reports and destinations, beside those of problems. They are the
// same words in conditions, events and metrics.
const (
	// ReasonImported: the export contributes to the import.
	ReasonImported = "Imported"
	// ReasonPending: the cluster was read and has not reported yet.
	ReasonPending = "Pending"
	// ReasonNamespaceMissing: the cluster has no namespace of that name.
	ReasonNamespaceMissing = "NamespaceMissing"
	// ReasonNamespaceReserved: nothing is imported into that namespace.
	ReasonNamespaceReserved = "NamespaceReserved"
	// ReasonImportDisabled: the cluster runs Comity without importing, since
	// another implementation propagates there.
	ReasonImportDisabled = "ImportDisabled"
	// ReasonUnreachable: the heartbeat of the cluster is missing, and no report was
	// read since this cluster's Comity started.
	ReasonUnreachable = "Unreachable"
	// ReasonUnknownCluster: there is no Peer of that id.
	ReasonUnknownCluster = "UnknownCluster"
	// ReasonInvalidRecord: the importing cluster refuses the record.
	ReasonInvalidRecord = "InvalidRecord"
	// ReasonNamespaceNotAccepted: the administrator of the importing cluster accepts
	// no exports of that namespace from the exporting cluster.
	ReasonNamespaceNotAccepted = "NamespaceNotAccepted"
	// ReasonNamespaceMismatch: the namespaces of the two clusters have different
	// identity labels.
	ReasonNamespaceMismatch = "NamespaceMismatch"
	// ReasonNamespaceUnknown: the identity labels of the exporting cluster's namespace
	// are not known; what was imported stays.
	ReasonNamespaceUnknown = "NamespaceUnknown"
)

// Takeover is a change of an import that waits for the confirmation of an
// administrator: the export By is older than that of Decider, and would decide what
// Decider, or another export of which the import consists, decides now.
type Takeover struct {
	Decider, By SourceExport
	// Fields are the properties of the import that would change, in a fixed order.
	// No text in them is from a member.
	Fields []string
	// Changes says how: "type: ClusterSetIP to Headless".
	Changes string
}

// Confirm is the command with which an administrator of this cluster confirms the
// takeover of the import key.
func (t *Takeover) Confirm(key types.NamespacedName) string {
	return fmt.Sprintf("kubectl comity confirm takeover %s --from %s", key, t.By.Cluster)
}

// ReportTakeovers is what cluster is to know of the takeovers in cluster self: of the
// one by its own export, else of the first one that its export waits to be replaced
// by; empty if none is about it. It names no third cluster, and no value of another
// one's export: the other one may be exported to self alone.
func ReportTakeovers(held []Takeover, cluster, self ClusterID, key types.NamespacedName) string {
	at := slices.IndexFunc(held, func(t Takeover) bool { return t.By.Cluster == cluster })
	if at < 0 {
		at = slices.IndexFunc(held, func(t Takeover) bool { return t.Decider.Cluster == cluster })
	}
	if at < 0 {
		return ""
	}
	t := held[at]
	name := func(id ClusterID, otherwise string) string {
		if id == self || id == cluster {
			return "of cluster " + string(id)
		}
		return otherwise
	}
	// The place comes first: conditions about many clusters quote only the beginning.
	return fmt.Sprintf("see condition TakeoverHeld of ServiceImport %s in cluster %s, which has the command: "+
		"the export %s is older than the one %s that decides there, and would change its %s",
		key, self, name(t.By.Cluster, "of another cluster"), name(t.Decider.Cluster, "of another cluster"), strings.Join(t.Fields, ", "))
}
