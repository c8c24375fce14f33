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

// Stage is what a policy decides on.
// +kubebuilder:validation:Enum=Export;Import
type Stage string

const (
	// StageExport decides what this cluster exports, and to whom.
	StageExport Stage = "Export"
	// StageImport decides what this cluster imports, and from whom.
	StageImport Stage = "Import"
)

// Existing is the effect of a denial on an export that is already published, or on an
// existing import.
// +kubebuilder:validation:Enum=Withdraw;Keep
type Existing string

const (
	// Withdraw withdraws it, after the grace period of the policy.
	Withdraw Existing = "Withdraw"
	// Keep leaves it published, with a warning.
	Keep Existing = "Keep"
)

// Exception is one export, or one import, that the policy does not deny until a date.
type Exception struct {
	// namespace of the export.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// name of the export; every export of the namespace when not set.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`
	// until is the last day of the exception, in UTC, as 2027-01-31.
	// +kubebuilder:validation:Format=date
	Until string `json:"until"`
	// reason says why there is an exception, for those who read the policy later.
	// +kubebuilder:validation:Pattern=`\S`
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason"`
}

// ExportPolicySpec describes one policy.
// +kubebuilder:validation:XValidation:rule="self.stage != 'Import' || (!has(self.match) || !has(self.match.objectSelector))",message="a policy with stage Import has no ServiceExport whose labels match.objectSelector could select; use match.namespaceSelector, or input.export.labels in the module"
// +kubebuilder:validation:XValidation:rule="self.stage != 'Import' || !has(self.grace)",message="a policy with stage Import has no grace period: what is denied is not imported"
type ExportPolicySpec struct {
	// stage is Export or Import.
	// +optional
	// +kubebuilder:default=Export
	Stage Stage `json:"stage,omitempty"`
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
	// existing is the effect of a denial on an export that is already published, or on
	// an existing import: Withdraw or Keep.
	// +optional
	// +kubebuilder:default=Withdraw
	Existing Existing `json:"existing,omitempty"`
	// grace is how long a published export stays published after it is first denied; its
	// conditions announce the withdrawal. At most 720h (30 days); none by default.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('720h')",message="expected a duration from 0s to 720h, such as 10m"
	Grace *metav1.Duration `json:"grace,omitempty"`
	// parametersSchema is a structural schema of the parameters, as in a
	// CustomResourceDefinition. Unknown properties are refused.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	ParametersSchema *apiextensionsv1.JSON `json:"parametersSchema,omitempty"`
	// exceptions are exports, or imports, that the policy does not deny until a date.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Exceptions []Exception `json:"exceptions,omitempty"`
	// match limits the exports that the policy applies to; all by default.
	// +optional
	Match *Match `json:"match,omitempty"`
}

// Match selects exports. A selector that is not set selects all.
type Match struct {
	// namespaceSelector is matched with the labels of the export's namespace.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// objectSelector is matched with the labels of the ServiceExport; in an update,
	// with those before it too.
	// +optional
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`
}

// ConditionCompiled is True when the module compiled and is in use. When it is False
// and enforcement is Deny, no export that the policy matches can be evaluated.
const ConditionCompiled = "Compiled"

// Reasons of ConditionCompiled.
const (
	ReasonCompiled     = "Compiled"
	ReasonCompileError = "CompileError"
)

// ConditionInForce is True when every replica of Comity enforces the policy as it is
// stored.
const ConditionInForce = "InForce"

// Reasons of ConditionInForce.
const (
	ReasonEveryReplica   = "EveryReplica"
	ReasonReplicaLags    = "ReplicaLags"
	ReasonNotCompiled    = "NotCompiled"
	ReasonReplicaUnknown = "ReplicaUnknown"
)

// Conditions that sum up Compiled and InForce, with their reasons, for tools that follow the
// conventions of kstatus, such as Flux. What exports do to the policy, as in Evaluated, is no
// part of them: an export of any namespace could keep others from being applied.
const (
	// ConditionReady is True when the policy compiled and every replica enforces it.
	ConditionReady = "Ready"
	// ConditionStalled is True when the policy must be changed before it can be Ready, and
	// is not there otherwise.
	ConditionStalled = "Stalled"
	// ConditionReconciling is True when the policy is not Ready yet, and is not there
	// otherwise.
	ConditionReconciling = "Reconciling"
)

// Violations are the exports or imports that violate a policy.
type Violations struct {
	// total is how many violate it.
	Total int32 `json:"total"`
	// items are the first 20 of them, sorted by namespace and name.
	// +optional
	// +listType=atomic
	Items []ViolationItem `json:"items,omitempty"`
}

// ViolationItem is one export or import that violates a policy.
type ViolationItem struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// cluster is the source cluster of an import; not set for an export.
	// +optional
	Cluster string `json:"cluster,omitempty"`
	// message is the first violation, shortened.
	Message string `json:"message"`
}

// ConditionEvaluated is False while an evaluation of the policy failed lately, so that
// an export was not evaluated; it is not there otherwise.
const ConditionEvaluated = "Evaluated"

// Reasons of ConditionEvaluated; the second one is one of ConditionCompiled, too.
const (
	ReasonEvaluationFailed = "EvaluationFailed"
	// ReasonResourceExhausted: compiling or evaluating the policy took more than it may.
	ReasonResourceExhausted = "ResourceExhausted"
)

// Quarantine is why a policy that compiles is not in use.
type Quarantine struct {
	// digest is that of the policy; another one is not in quarantine.
	Digest string `json:"digest"`
	// message says for what the policy took more than it may.
	Message string `json:"message"`
}

// Failures are evaluations of a policy that failed.
type Failures struct {
	// count is how many evaluations of this generation of the policy failed, in all
	// replicas together.
	Count int64 `json:"count"`
	// lastObject is the export of the last one: kind, namespace and name.
	LastObject string `json:"lastObject"`
	// lastOperation is CREATE, UPDATE or AUDIT.
	LastOperation string `json:"lastOperation"`
	// lastTime is when the last one was reported.
	LastTime metav1.Time `json:"lastTime"`
}

// ExportPolicyStatus is the observed state of a policy.
type ExportPolicyStatus struct {
	// observedGeneration is the metadata.generation that the conditions are about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions has Compiled, whose message names file:row:column and the error,
	// InForce, and Ready, which is True if both are; if it is not, Stalled or Reconciling.
	// It has Evaluated while evaluations fail.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// digest is the SHA-256 of the spec in use, with the exceptions that are in force, and
	// of the library of Comity; not set when the policy is not in use.
	// +optional
	Digest string `json:"digest,omitempty"`
	// matched is how many exports, or imports from one cluster, the policy matches.
	// +optional
	Matched *int32 `json:"matched,omitempty"`
	// violations are the exports, or imports, that violate the stored policy.
	// +optional
	Violations *Violations `json:"violations,omitempty"`
	// failures is set while the condition Evaluated is present.
	// +optional
	Failures *Failures `json:"failures,omitempty"`
	// quarantine is set if the policy took more memory or time than it may for exports of
	// two namespaces, or in a preview. It is not in use until it is changed.
	// +optional
	Quarantine *Quarantine `json:"quarantine,omitempty"`
}

// ExportPolicy is one policy on what may be exported and to whom, or, with stage
// Import, on what may be imported and from whom.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=exppol
// +kubebuilder:printcolumn:name="Stage",type=string,JSONPath=`.spec.stage`
// +kubebuilder:printcolumn:name="Enforcement",type=string,JSONPath=`.spec.enforcement`
// +kubebuilder:printcolumn:name="Existing",type=string,JSONPath=`.spec.existing`,priority=1
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,priority=1
// +kubebuilder:printcolumn:name="Compiled",type=string,JSONPath=`.status.conditions[?(@.type=="Compiled")].status`
// +kubebuilder:printcolumn:name="In force",type=string,JSONPath=`.status.conditions[?(@.type=="InForce")].status`
// +kubebuilder:printcolumn:name="Matched",type=integer,JSONPath=`.status.matched`
// +kubebuilder:printcolumn:name="Violations",type=integer,JSONPath=`.status.violations.total`
// +kubebuilder:printcolumn:name="Failures",type=integer,JSONPath=`.status.failures.count`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ExportPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ExportPolicySpec `json:"spec"`
	// status has an observedGeneration from the start, so that a policy that nobody has looked
	// at yet does not count as one that is Ready.
	// +kubebuilder:default:={"observedGeneration":-1}
	Status ExportPolicyStatus `json:"status,omitempty"`
}

// ExportPolicyList is a list of ExportPolicy.
// +kubebuilder:object:root=true
type ExportPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ExportPolicy `json:"items"`
}
