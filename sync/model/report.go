// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Report is the report of one cluster about importing one export of another; or, of a cluster
// in the scope that has not reported, what is known instead.
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
	// Since is when Imported or Reason last changed, in the reporter's time; zero if not known.
	Since time.Time
	// Decider is the cluster whose export decides the import there; empty if none does, or
	// if this cluster may not know of it.
	Decider ClusterID
	// Unsynced is true while the reports of that cluster were not read since this
	// process started; then its Reason is ReasonPending.
	Unsynced bool
}

// Refusal is an export of a cluster that is not imported here, whatever the others
// export.
type Refusal struct {
	// ExportUID is the ServiceExport that the cluster says it exports.
	ExportUID types.UID
	// Field is the first field of its record that is not valid, as a path; empty if the
	// namespace is not accepted from that cluster.
	Field string
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
	// Drained is true while the cluster is drained for this import.
	Drained bool
	// HasEndpoints is true if it publishes endpoints that may be imported.
	HasEndpoints bool
	// Unready is how many of its endpoints are marked not ready here, whatever for.
	Unready int
}

// Freeze is why no property of an import changes.
type Freeze struct {
	// By is the source that decides, without what becomes of its endpoints.
	By Source
	// Waits is true if another export would change the import.
	Waits bool
	// Until is when the next export decides; zero if no time ends it.
	Until time.Time
}

// IsAwaited reports whether other exports wait until a command ends f, or the cluster that
// decides is read: not while a time ends it. A nil f is not.
func (f *Freeze) IsAwaited() bool { return f != nil && f.Waits && !f.By.State.IsOut() }

// Reasons of reports, beside those of problems. They are the
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

// ReportTakeovers is what cluster is to know of the takeovers in cluster self: of the first one
// by its own export, or that its export waits to be replaced by; empty if none is about it.
// It names no third cluster, and no value of another one's export: the other one may be
// exported to self alone.
func ReportTakeovers(held []Takeover, cluster, self ClusterID, key types.NamespacedName) string {
	t, found := Find(held, func(t Takeover) bool { return t.By.Cluster == cluster || t.Decider.Cluster == cluster })
	if !found {
		return ""
	}
	// The place comes first: conditions about many clusters quote only the beginning.
	return fmt.Sprintf("see condition TakeoverHeld of ServiceImport %s in cluster %s, which has the command: an older export waits to decide there instead of another one, "+
		"and would change its %s; that of cluster %s is one of the two", key, self, strings.Join(t.Fields, ", "), cluster)
}

// Publication says whether a local ServiceExport is published.
type Publication int

// The zero value is invalid, so that a forgotten field is noticed.
const (
	// PublicationNone: there is no export to publish, or it is not valid.
	PublicationNone Publication = iota + 1
	// Published: the records of the export equal what is stored now.
	Published
	// PublicationWithheld: policy does not let it be published.
	PublicationWithheld
	// PublicationPending: policies could not be evaluated yet.
	PublicationPending
	// PublicationFailed: it could not be written; Detail says why and what to do.
	PublicationFailed
)

// Problem is a problem with one part of an import: an object of somebody else that
// has its name, for example. The other parts are imported all the same.
type Problem struct {
	// Reason is one word, used as the reason of an event.
	Reason string
	// Cluster is the one whose export or endpoints it is about; empty if it is
	// about this cluster's objects.
	Cluster ClusterID
	// Message names the object, what was expected and what to do.
	Message string
}

// Problemf is a problem with a message in the format of fmt.Sprintf, which may have text of
// policies or of another cluster.
func Problemf(reason string, cluster ClusterID, format string, args ...any) Problem {
	return Problem{Reason: reason, Cluster: cluster, Message: OneLine(fmt.Sprintf(format, args...), MaxEventNote)}
}

// Reasons of problems.
const (
	// ReasonNameTaken: an object that is not Comity's has the name of a derived one.
	ReasonNameTaken = "NameTaken"
	// ReasonForeignImport: a ServiceImport that Comity did not make is in the way.
	ReasonForeignImport = "ForeignImport"
	// ReasonTypeChanged: the derived Service is replaced, because a cluster IP
	// can be neither given to a Service nor taken from it.
	ReasonTypeChanged = "TypeChanged"
	// ReasonIPFamilyNotSupported: this cluster has none of the import's IP families.
	ReasonIPFamilyNotSupported = "IPFamilyNotSupported"
	// ReasonTooManyZones: this cluster has more zones than an endpoint can be
	// hinted to, so that in some of them the tier that serves is not preferred.
	ReasonTooManyZones = "TooManyZones"
	// ReasonRefused: the API server does not accept what an import needs.
	ReasonRefused = "Refused"
	// ReasonAddressOverlap: endpoints of a peer lie in this cluster's own pod
	// or service address ranges; they are left out.
	ReasonAddressOverlap = "AddressOverlap"
	// ReasonAddressNotAccepted: endpoints of a peer lie outside the ranges that
	// the local administrator accepted for it; they are left out.
	ReasonAddressNotAccepted = "AddressNotAccepted"
	// ReasonInvalidEndpoints: parts of a peer's slices are malformed or can be
	// no pod's (loopback, link-local, ...); they are left out.
	ReasonInvalidEndpoints = "InvalidEndpoints"
	// ReasonInvalidAnnotation: an annotation of Comity's cannot be read, and its
	// default holds.
	ReasonInvalidAnnotation = "InvalidAnnotation"
	// ReasonReservedKey: labels or annotations that an export wants to export are left out.
	ReasonReservedKey = "ReservedKey"
	// ReasonTakeoverHeld: another export would become the deciding one and change
	// the import; it waits for the confirmation of an administrator.
	ReasonTakeoverHeld = "TakeoverHeld"
	// ReasonExportJoined is that of an event: another export of a settled import is
	// used from now on.
	ReasonExportJoined = "ExportJoined"
	// ReasonMissing: an export is missing although its publisher did not withdraw it; what
	// was imported of it is kept.
	ReasonMissing = "Missing"
	// ReasonFrozen: no property of the import changes, because the export that decides is
	// not read or missing, and what another export asks for waits.
	ReasonFrozen = "Frozen"
	// ReasonSliceMissing: the same of a copy of a slice, which the export still names.
	ReasonSliceMissing = "SliceMissing"
	// ReasonLimitExceeded: a peer publishes more than this cluster reads or writes
	// of one member; what exists stays as it is.
	ReasonLimitExceeded = "LimitExceeded"
	// ReasonPolicyDenied: a policy of the importing cluster denies the import from one
	// cluster, or annotation comity.dev/import-from of the Namespace does; or a policy
	// denies an export.
	ReasonPolicyDenied = "PolicyDenied"
	// ReasonNotEvaluated: the policies could not be evaluated for the import from one
	// cluster, and what was imported stays; or for an export.
	ReasonNotEvaluated = "NotEvaluated"
	// ReasonPolicyWarning: a policy has a warning about the import from one cluster.
	ReasonPolicyWarning = "PolicyWarning"
	// ReasonContested: something else keeps changing a derived object.
	ReasonContested = "Contested"
)

// Observation is what the controllers of package sync/controllers found for one
// namespace/name. The status controller needs nothing else of them.
type Observation struct {
	Publication Publication
	// Detail explains a publication that is not Published; empty otherwise.
	Detail string
	// Scope is where the local export goes, once published.
	Scope Scope
	// WithdrawnAt is when the local export will be withdrawn, which policies deny though
	// it is still published, or from some clusters; zero otherwise.
	WithdrawnAt time.Time
	// Import is the resolved import, nil when no export reaches this cluster.
	Import *Import
	// Unsynced are the peers whose exports were not read since start, and which may
	// contribute to the import; and this cluster while policies could not be
	// evaluated for its own export. Starting are those of them that may be read soon: this
	// cluster, and the peers that are being connected to for the first time.
	Unsynced, Starting []ClusterID
	// Conflicts are those among the exports that reach this cluster, in the
	// order of the reasons in KEP-1645.
	Conflicts []Conflict
	Problems  []Problem

	// Sources are the exports that the list of the import has, in its order.
	Sources []Source
	// Decider is the export that decides what is served; zero if none does.
	Decider SourceExport
	// Tiers are those of the import in force; nil if there are none.
	Tiers *TiersInForce
	// Freeze is why no property of the import changes; nil if they may.
	Freeze *Freeze
	// Takeovers are those that are held, that by the oldest export first; at most one
	// by each cluster.
	Takeovers []Takeover
}

// Source is that of a cluster; false if the list has none.
func (o *Observation) Source(cluster ClusterID) (Source, bool) {
	return Find(o.Sources, func(s Source) bool { return s.Cluster == cluster })
}

// ImportCounts is what the imports of this cluster have of another one.
type ImportCounts struct {
	// Missing are its exports that are missing and kept, Waiting those that would change
	// an import and wait for a confirmation. The first ones are by namespace and name.
	Missing, Waiting           int
	FirstMissing, FirstWaiting types.NamespacedName
}
