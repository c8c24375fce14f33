// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

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
	// Others are the clusters beside Cluster that Message names.
	Others []ClusterID
	// Message names the object, what was expected and what to do.
	Message string
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
	// hinted to, so that in some of them local endpoints are not preferred.
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
	// cluster, or annotation comity.dev/import-from of the Namespace does.
	ReasonPolicyDenied = "PolicyDenied"
	// ReasonNotEvaluated: the policies could not be evaluated for the import from one
	// cluster; what was imported stays.
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
	// evaluated for its own export.
	Unsynced []ClusterID
	// Conflicts are those among the exports that reach this cluster, in the
	// order of the reasons in KEP-1645.
	Conflicts []Conflict
	Problems  []Problem

	// Sources are the exports that the list of the import has, in its order.
	Sources []Source
	// Decider is the export that decides what is served; zero if none does.
	Decider SourceExport
	// Freeze is why no property of the import changes; nil if they may.
	Freeze *Freeze
	// Takeovers are those that are held, that by the oldest export first; at most one
	// by each cluster.
	Takeovers []Takeover
}

// Source is that of a cluster; false if the list has none.
func (o *Observation) Source(cluster ClusterID) (Source, bool) {
	if o == nil {
		return Source{}, false
	}
	if at := slices.IndexFunc(o.Sources, func(s Source) bool { return s.Cluster == cluster }); at >= 0 {
		return o.Sources[at], true
	}
	return Source{}, false
}

// ImportCounts is what the imports of this cluster have of another one.
type ImportCounts struct {
	// Missing are its exports that are missing and kept, Waiting those that would change
	// an import and wait for a confirmation. The first ones are by namespace and name.
	Missing, Waiting           int
	FirstMissing, FirstWaiting types.NamespacedName
}
