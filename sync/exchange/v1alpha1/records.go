// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// ExportRecordSpec is one exported Service as every reader of the record's
// namespace may know it.
type ExportRecordSpec struct {
	// service is the namespace and name of the exported Service.
	Service ServiceReference `json:"service"`
	// exportUID is the UID of the ServiceExport.
	ExportUID types.UID `json:"exportUID"`
	// exportedAt is the creation time of the ServiceExport, by which conflicts
	// are resolved (oldest first).
	ExportedAt metav1.Time `json:"exportedAt"`
	// type is ClusterSetIP or Headless.
	// +kubebuilder:validation:Enum=ClusterSetIP;Headless
	Type mcsv1beta1.ServiceImportType `json:"type"`
	// ports are the Service's ports; none are allowed for a headless Service.
	// +optional
	// +listType=atomic
	Ports []mcsv1beta1.ServicePort `json:"ports,omitempty"`
	// ipFamilies are the Service's IP families, in its order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	IPFamilies []corev1.IPFamily `json:"ipFamilies,omitempty"`
	// sessionAffinity is the Service's.
	// +optional
	SessionAffinity corev1.ServiceAffinity `json:"sessionAffinity,omitempty"`
	// sessionAffinityConfig is the Service's.
	// +optional
	SessionAffinityConfig *corev1.SessionAffinityConfig `json:"sessionAffinityConfig,omitempty"`
	// internalTrafficPolicy is the Service's.
	// +optional
	InternalTrafficPolicy *corev1.ServiceInternalTrafficPolicy `json:"internalTrafficPolicy,omitempty"`
	// trafficDistribution is the Service's.
	// +optional
	TrafficDistribution *string `json:"trafficDistribution,omitempty"`
	// labels are ServiceExport.spec.exportedLabels.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// annotations are ServiceExport.spec.exportedAnnotations.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// preferLocal asks importers to route to endpoints of their own cluster
	// first (annotation comity.dev/prefer: local on the ServiceExport).
	// +optional
	PreferLocal bool `json:"preferLocal,omitempty"`
	// selector is the Service's, for importers that maintain selectors. It is
	// published only where the exporter maintains them too.
	// +optional
	Selector map[string]string `json:"selector,omitempty"`
	// targets say where in a pod the traffic to each port goes; published with
	// selector only.
	// +optional
	// +listType=atomic
	Targets []Target `json:"targets,omitempty"`
}

// Target is where in a pod the traffic to one port goes.
type Target struct {
	Port int32 `json:"port"`
	// +kubebuilder:validation:Enum=TCP;UDP;SCTP
	Protocol corev1.Protocol `json:"protocol"`
	// targetPort is the number or the name of a container's port.
	TargetPort intstr.IntOrString `json:"targetPort"`
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
type ExportRecord struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ExportRecordSpec `json:"spec"`
}

// ExportRecordList is a list of ExportRecord.
// +kubebuilder:object:root=true
type ExportRecordList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ExportRecord `json:"items"`
}

// ImportRecordSpec is what the publisher says of importing one export of one
// other cluster, the only reader of the record's namespace.
type ImportRecordSpec struct {
	// service is the namespace and name of the exported Service.
	Service ServiceReference `json:"service"`
	// exportUID is the UID of the ServiceExport that the record is about.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	ExportUID types.UID `json:"exportUID"`
	// imported is true if the export contributes to the import there.
	Imported bool `json:"imported"`
	// reason is Imported, or why the export is not, or why only in part, in one word.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message says more; empty if reason is Imported.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// since is when imported or reason last changed.
	Since metav1.Time `json:"since"`
}

// ImportRecord is what one cluster says of importing one export of another. It
// stands in the exchange namespace that the exporter alone reads, and has the
// name of the ExportRecord.
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=imprec
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.service.namespace`
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.spec.service.name`
// +kubebuilder:printcolumn:name="Imported",type=boolean,JSONPath=`.spec.imported`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`
type ImportRecord struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ImportRecordSpec `json:"spec"`
}

// ImportRecordList is a list of ImportRecord.
// +kubebuilder:object:root=true
type ImportRecordList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ImportRecord `json:"items"`
}

// NamespaceRecordSpec says that the publisher has a namespace of the record's name.
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

	Spec NamespaceRecordSpec `json:"spec,omitempty"`
}

// NamespaceRecordList is a list of NamespaceRecord.
// +kubebuilder:object:root=true
type NamespaceRecordList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NamespaceRecord `json:"items"`
}

// MemberRecordSpec is what a member says of itself.
type MemberRecordSpec struct {
	// clusterID is the member's id. A reader that expects another refuses the peer.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClusterID string `json:"clusterID"`
	// clusterSet is the set that the member belongs to.
	// +kubebuilder:validation:MinLength=1
	ClusterSet string `json:"clusterSet"`
	// version is Comity's.
	// +optional
	Version string `json:"version,omitempty"`
	// clusterUID is the UID of the member's kube-system namespace. A reader
	// that knows the member by another one refuses it: the id was reused.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=128
	ClusterUID types.UID `json:"clusterUID,omitempty"`
	// podCIDRs and serviceCIDRs are the member's address ranges, as far as it
	// knows them. They are its claim: what is accepted, readers decide.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	ServiceCIDRs []string `json:"serviceCIDRs,omitempty"`
}

// MemberRecord is written once everything that a member shares at start is
// published: where it is missing, an empty exchange means "not known yet" and
// not "nothing is exported". Its name is the member's id.
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=memrec
// +kubebuilder:printcolumn:name="Set",type=string,JSONPath=`.spec.clusterSet`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
type MemberRecord struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec MemberRecordSpec `json:"spec"`
}

// MemberRecordList is a list of MemberRecord.
// +kubebuilder:object:root=true
type MemberRecordList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []MemberRecord `json:"items"`
}
