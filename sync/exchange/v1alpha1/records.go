// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
