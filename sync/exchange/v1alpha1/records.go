// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
)

// ExportRecordSpec describes one exported Service to the readers of the record's
// namespace. As with the other records, it is one value to the API server: an apply
// leaves nothing in it that something else wrote.
type ExportRecordSpec struct {
	// service is the namespace and name of the exported Service.
	Service ServiceReference `json:"service"`
	// exportUID is the UID of the ServiceExport.
	ExportUID types.UID `json:"exportUID"`
	// exportedAt is the creation time of the ServiceExport, by which conflicts
	// are resolved (oldest first).
	ExportedAt              metav1.Time `json:"exportedAt"`
	model.ServiceProperties `json:",inline"`

	// targets are the target ports in the pods; published only with selector.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Targets []model.Target `json:"targets,omitempty"`
	// withdrawn states that the ServiceExport exportUID is no longer exported to
	// the readers of the record's namespace. Such a record has no ports and no
	// properties, and is deleted once no member imports the export any more. A
	// record that is missing states nothing. Readers that do not know the field
	// refuse the record, because it has no ports.
	// +optional
	Withdrawn bool `json:"withdrawn,omitempty"`
	// narrowed is true if withdrawn is, and the export is still published to some
	// members in the exchange namespaces that they alone read. To a member that found
	// the export there such a record states nothing.
	// +optional
	Narrowed bool `json:"narrowed,omitempty"`
	// suspended is true if withdrawn is, and the ServiceExport exists still: its Service is
	// missing, policies of the publisher deny it, or its scope leaves the readers out. The
	// export keeps its place in the imports of the readers.
	// +optional
	Suspended bool `json:"suspended,omitempty"`
	// withdrawnAt is when the withdrawal was first stated, or when it ended if it was
	// suspended before. It tells the publisher when it may delete the statement; readers
	// ignore it.
	// +optional
	WithdrawnAt *metav1.Time `json:"withdrawnAt,omitempty"`
	// exportVersion is the resourceVersion of the ServiceExport when the record was
	// written. An API server whose store has a lower version was restored from a backup.
	// Readers ignore it.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ExportVersion string `json:"exportVersion,omitempty"`
	// lost is true if the ServiceExport disappeared with a restore of the publisher's API
	// server, or with the CustomResourceDefinition of ServiceExports, so that nobody
	// deleted it. What the record says stays as it is until the
	// ServiceExport exists again, or an administrator of the publisher confirms that it is
	// gone (kubectl comity confirm lost). Readers ignore it.
	// +optional
	Lost bool `json:"lost,omitempty"`
	// slices are the names of the EndpointSlices of the Service of which a copy
	// is published. A copy that is named here and missing was lost; one that is not
	// named was removed by the publisher.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2000
	// +kubebuilder:validation:items:MaxLength=253
	Slices []string `json:"slices,omitempty"`
	// namespace is what the NamespaceRecord of the Service's namespace says, for
	// readers that compare namespaces before they import. If it is not set, the
	// NamespaceRecord applies.
	// +optional
	Namespace *NamespaceRecordSpec `json:"namespace,omitempty"`
}

// ServiceReference names a Service.
type ServiceReference struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
}

// ExportRecord is one exported Service for one audience.
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=exprec
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.service.namespace`
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.spec.service.name`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Withdrawn",type=boolean,JSONPath=`.spec.withdrawn`
type ExportRecord struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +structType=atomic
	Spec ExportRecordSpec `json:"spec"`
}

// ExportRecordList is a list of ExportRecord.
// +kubebuilder:object:root=true
type ExportRecordList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ExportRecord `json:"items"`
}

// ImportRecordSpec describes how the publisher imports one export of one other
// cluster, which is the only reader of the record's namespace.
type ImportRecordSpec struct {
	// service is the namespace and name of the exported Service.
	Service ServiceReference `json:"service"`
	// exportUID is the UID of the ServiceExport that the record is about.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	ExportUID types.UID `json:"exportUID"`
	// imported is true if the export contributes to the import of the publisher.
	Imported bool `json:"imported"`
	// reason is Imported, or one word for why the export is not imported, or only in
	// part.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message explains the reason; empty if it is Imported.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// since is when imported or reason last changed.
	Since metav1.Time `json:"since"`
	// decider is the cluster whose export decides the properties of the import; empty if
	// none does, or if the reader may not know of that export.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Decider string `json:"decider,omitempty"`
}

// ImportRecord describes how one cluster imports one export of another. It is in the
// exchange namespace that only the exporter reads, and has the name of the
// ExportRecord.
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=imprec
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.service.namespace`
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.spec.service.name`
// +kubebuilder:printcolumn:name="Imported",type=boolean,JSONPath=`.spec.imported`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`
type ImportRecord struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +structType=atomic
	Spec ImportRecordSpec `json:"spec"`
}

// ImportRecordList is a list of ImportRecord.
// +kubebuilder:object:root=true
type ImportRecordList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ImportRecord `json:"items"`
}

// NamespaceRecordSpec describes a namespace of the publisher that has the record's
// name.
type NamespaceRecordSpec struct {
	// labels are the namespace's identity labels, by which namespace sameness is checked.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
}

// NamespaceRecord is one user namespace of the publisher; its name is the namespace's.
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=nsrec
type NamespaceRecord struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +structType=atomic
	Spec NamespaceRecordSpec `json:"spec,omitempty"`
}

// NamespaceRecordList is a list of NamespaceRecord.
// +kubebuilder:object:root=true
type NamespaceRecordList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NamespaceRecord `json:"items"`
}

// MemberRecordSpec describes a member.
type MemberRecordSpec struct {
	// clusterID is the member's id. A reader that expects another refuses the peer.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClusterID string `json:"clusterID"`
	// clusterSet is the set that the member belongs to.
	// +kubebuilder:validation:MinLength=1
	ClusterSet string `json:"clusterSet"`
	// version is that of Comity.
	// +optional
	Version string `json:"version,omitempty"`
	// clusterUID is the UID of the member's kube-system namespace. A reader
	// that has recorded another UID for the member refuses it: the id was reused.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	ClusterUID types.UID `json:"clusterUID,omitempty"`
	// podCIDRs and serviceCIDRs are the member's address ranges, as far as it
	// knows them. Each reader decides which ranges it accepts.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	ServiceCIDRs []string `json:"serviceCIDRs,omitempty"`
}

// MemberRecord is written once a member has published everything that it shared when
// it started. While it is missing, an empty exchange means that the exports are not
// known yet, and not that nothing is exported. Its name is the member's id.
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=memrec
// +kubebuilder:printcolumn:name="Set",type=string,JSONPath=`.spec.clusterSet`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
type MemberRecord struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +structType=atomic
	Spec MemberRecordSpec `json:"spec"`
}

// MemberRecordList is a list of MemberRecord.
// +kubebuilder:object:root=true
type MemberRecordList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []MemberRecord `json:"items"`
}
