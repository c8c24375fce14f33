// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Enforcement is the effect of a violation.
// +kubebuilder:validation:Enum=Deny;Warn;Audit
type Enforcement string

const (
	// Deny refuses the request. A stored export that violates the policy is not published.
	Deny Enforcement = "Deny"
	// Warn accepts the request and returns a warning to the requester.
	Warn Enforcement = "Warn"
	// Audit accepts the request; only conditions show the violation.
	Audit Enforcement = "Audit"
)

// ExportPolicySpec describes one policy.
type ExportPolicySpec struct {
	// rego is the module: package comity.policies.<name>, Rego v1, with sets
	// deny and warn of objects {msg, field, remedy}. See policies/INPUT.md.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=262144
	Rego string `json:"rego"`
	// parameters are available to the module, in package comity.policies.<name>, as
	// data.comity.params.<name>.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Parameters *apiextensionsv1.JSON `json:"parameters,omitempty"`
	// enforcement is Deny, Warn or Audit.
	// +optional
	// +kubebuilder:default=Deny
	Enforcement Enforcement `json:"enforcement,omitempty"`
	// match limits the exports that the policy applies to; all by default.
	// +optional
	Match *Match `json:"match,omitempty"`
}

// Match selects exports. A selector that is not set selects all.
type Match struct {
	// namespaceSelector is matched with the labels of the export's namespace.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// objectSelector is matched with the labels of the ServiceExport.
	// +optional
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`
}

// ConditionCompiled is True when the module compiled and is in use. When it is
// False, the last module that compiled stays in use, if there was one.
const ConditionCompiled = "Compiled"

// Reasons of ConditionCompiled.
const (
	ReasonCompiled     = "Compiled"
	ReasonCompileError = "CompileError"
)

// ExportPolicyStatus is the observed state of a policy.
type ExportPolicyStatus struct {
	// conditions holds Compiled; its message is file:row:column and the error.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// digest is the SHA-256 of the module and parameters in use.
	// +optional
	Digest string `json:"digest,omitempty"`
}

// ExportPolicy is one policy on what may be exported and to whom.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=exppol
// +kubebuilder:printcolumn:name="Enforcement",type=string,JSONPath=`.spec.enforcement`
// +kubebuilder:printcolumn:name="Compiled",type=string,JSONPath=`.status.conditions[?(@.type=="Compiled")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ExportPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ExportPolicySpec   `json:"spec"`
	Status ExportPolicyStatus `json:"status,omitempty"`
}

// ExportPolicyList is a list of ExportPolicy.
// +kubebuilder:object:root=true
type ExportPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ExportPolicy `json:"items"`
}
