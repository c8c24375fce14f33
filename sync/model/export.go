// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// Export is one exported Service of one cluster: what KEP-1645 calls a
// constituent of the import.
type Export struct {
	SourceExport
	ServiceProperties
	Key types.NamespacedName
	// Targets are the Service's, for importers that maintain selectors; empty unless the
	// exporter publishes its selector.
	Targets []Target
	// Identity are the identity labels of the Service's namespace, as published
	// with the export; nil if they were not.
	Identity map[string]string
	// Slices are the names of the EndpointSlices of the Service of which a copy is
	// published.
	Slices []string
}

// ServiceProperties are the properties of an exported Service that importers use. They are
// those of an ExportRecord.
type ServiceProperties struct {
	Type                  mcsv1beta1.ServiceImportType
	Ports                 []mcsv1beta1.ServicePort
	IPFamilies            []corev1.IPFamily
	SessionAffinity       corev1.ServiceAffinity
	SessionAffinityConfig *corev1.SessionAffinityConfig
	InternalTrafficPolicy *corev1.ServiceInternalTrafficPolicy
	TrafficDistribution   *string
	// Labels and Annotations are ServiceExport.spec.exported*, never the Service's own.
	Labels      map[string]string
	Annotations map[string]string
	// Tiers are the Tiers that the exporter asks for, as its annotation has them: they may
	// be invalid.
	Tiers string
	// Selector is the Service's, for importers that maintain selectors; empty unless the
	// exporter publishes it.
	Selector map[string]string
}

// Withdrawal is the statement of a cluster that it exports a Service no longer.
type Withdrawal struct {
	// UID and CreatedAt are those of the ServiceExport. An empty UID means
	// every export of that name: if a member does not publish withdrawals, the absence
	// of an export is treated as one.
	UID       types.UID
	CreatedAt time.Time
	// Suspended is true if the ServiceExport exists still.
	Suspended bool
	// Narrowed is true if the export is still published to some members, each of which
	// finds it where only that member reads.
	Narrowed bool
}

// Target is where in a pod the traffic to one Service port goes.
type Target struct {
	Port       int32
	Protocol   corev1.Protocol
	TargetPort intstr.IntOrString
}

// Import is what the exports of one namespace/name that reach a cluster are
// resolved to. Its IPs, which each cluster assigns, mean nothing.
type Import struct {
	Key types.NamespacedName
	mcsv1beta1.ServiceImportSpec
	Labels, Annotations map[string]string

	// Tiers, Selector and Targets are those of the deciding export. Of an import that is
	// planned, Tiers are those in force.
	Tiers    string
	Selector map[string]string
	Targets  []Target

	// Constituents are the contributing exports, the deciding one first: oldest
	// first, but for takeovers that are held.
	Constituents []Constituent
}

// Constituent is the part of a cluster; false if it has none.
func (i *Import) Constituent(cluster ClusterID) (Constituent, bool) {
	return Find(i.Constituents, func(c Constituent) bool { return c.Cluster == cluster })
}

// Constituent is one cluster's part in an Import.
type Constituent struct {
	SourceExport
	// Ports are those of the export that equal the resolved ones by name,
	// protocol and number. Traffic to any other port must not reach this cluster.
	Ports []mcsv1beta1.ServicePort
	// Declared are all ports of the export, resolved or not. They are needed
	// where an existing import is kept as it is because a cluster was not read:
	// then what this cluster may serve is measured against the kept ports.
	Declared []mcsv1beta1.ServicePort
}

// Conflict is one property in which the exports of a Service disagree.
type Conflict struct {
	Reason mcsv1beta1.ServiceExportConditionReason
	// Message says which clusters differ in what, and whose value is used.
	Message string
}

// ExportState is the row of the export table that applies to one ServiceExport. The words are
// those of the docs.
type ExportState string

// The zero value is invalid, so that a forgotten field is noticed. The first row that
// matches applies.
const (
	// ExportDuplicate: another cluster has the id of this one.
	ExportDuplicate ExportState = "Duplicate"
	// ExportUnknown: the API server did not say whether the ServiceExport exists, or a
	// cache is behind it.
	ExportUnknown ExportState = "Unknown"
	// ExportUndefined: the definition of ServiceExports is missing or terminating.
	ExportUndefined ExportState = "Undefined"
	// ExportLost: the ServiceExport disappeared with a restore of the store, or with its
	// definition.
	ExportLost ExportState = "Lost"
	// ExportEnded: there is no ServiceExport.
	ExportEnded ExportState = "Ended"
	// ExportNoService: its Service is missing or terminating.
	ExportNoService ExportState = "NoService"
	// ExportNotExportable: its Service cannot be exported.
	ExportNotExportable ExportState = "NotExportable"
	// ExportInvalid: its annotations, or those of its Namespace, allow no cluster or port.
	ExportInvalid ExportState = "Invalid"
	// ExportInGrace: policies deny it, after a grace period.
	ExportInGrace ExportState = "InGrace"
	// ExportDenied: policies deny it.
	ExportDenied ExportState = "Denied"
	// ExportNotEvaluated: policies could not be evaluated.
	ExportNotEvaluated ExportState = "NotEvaluated"
	// ExportPublished: none of the above.
	ExportPublished ExportState = "Published"
)
