// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package decision has the input and the output of a policy evaluation: Input,
// Verdict and Violation.
//
// It is pure and the root of the import graph: it knows Kubernetes and MCS API
// types, nothing else of Comity, and neither Rego nor a cluster. The JSON form of
// Input is the contract with policy authors, which policies/INPUT.md describes.
package decision

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// InputVersion is Input.APIVersion; it changes when a field changes its meaning.
const InputVersion = "policy.comity.dev/v1alpha1"

// Operation is the kind of request that is decided on.
type Operation string

const (
	// Create is a request to store a new object.
	Create Operation = "CREATE"
	// Update is a request to replace a stored object.
	Update Operation = "UPDATE"
	// Audit is a review of what is stored, without a request.
	Audit Operation = "AUDIT"
)

// Subject is the kind of the object whose request is decided on.
type Subject string

const (
	// SubjectServiceExport is a request on the export itself.
	SubjectServiceExport Subject = "ServiceExport"
	// SubjectService is a request on a Service that is exported.
	SubjectService Subject = "Service"
)

// Input is everything that a policy may use.
type Input struct {
	APIVersion string    `json:"apiVersion"`
	Operation  Operation `json:"operation"`
	Subject    Subject   `json:"subject"`
	// UserInfo is the user who made the request; nil in an audit.
	UserInfo *UserInfo `json:"userInfo,omitempty"`
	// Object is the ServiceExport as it would be stored; never nil.
	Object *mcsv1beta1.ServiceExport `json:"object"`
	// OldObject is the ServiceExport before an update of it.
	OldObject *mcsv1beta1.ServiceExport `json:"oldObject,omitempty"`
	// Service is the Service of that name, nil when it does not exist (yet).
	Service *corev1.Service `json:"service"`
	// Namespace is the namespace of the export, nil only if it vanished meanwhile.
	Namespace *corev1.Namespace `json:"namespace"`
	// Cluster is the id of the cluster that decides.
	Cluster string `json:"cluster"`
	// Scope is the scope that the export asks for, NamespaceScope the limit of its namespace.
	Scope          Scope `json:"scope"`
	NamespaceScope Scope `json:"namespaceScope"`
	// Peers are the other members of the clusterset by cluster id.
	Peers map[string]Peer `json:"peers"`
}

// UserInfo is the user who made the request.
type UserInfo struct {
	Username string   `json:"username"`
	Groups   []string `json:"groups"`
}

// Scope is a parsed comity.dev/export-to annotation.
type Scope struct {
	// All is true when no annotation narrows the scope.
	All bool `json:"all"`
	// Clusters are the listed ids, sorted.
	Clusters []string `json:"clusters"`
	// Problem says why the annotation could not be read; empty when it could.
	Problem string `json:"problem,omitempty"`
}

// Peer is another member of the clusterset.
type Peer struct {
	// Namespace is the peer's namespace of the export's namespace name.
	Namespace PeerNamespace `json:"namespace"`
}

// Presence says whether another cluster has a namespace, in words for Rego.
type Presence string

const (
	// Unknown means that the peer has not been read yet.
	Unknown Presence = "unknown"
	// Present means that the peer publishes the namespace.
	Present Presence = "present"
	// Absent means that the peer was read and does not publish the namespace.
	Absent Presence = "absent"
)

// PeerNamespace is what a peer publishes about a namespace.
type PeerNamespace struct {
	Presence Presence `json:"presence"`
	// Labels are the identity labels of the namespace.
	Labels map[string]string `json:"labels"`
}

// Outcome is the result of a policy evaluation.
type Outcome int

// The zero value is NotEvaluated: without an evaluation an export is neither allowed
// nor denied.
const (
	NotEvaluated Outcome = iota
	Allowed
	Denied
)

// String is the outcome as one word.
func (o Outcome) String() string {
	switch o {
	case Allowed:
		return "Allowed"
	case Denied:
		return "Denied"
	default:
		return "NotEvaluated"
	}
}

// Verdict is the answer of all policies together.
type Verdict struct {
	Outcome Outcome
	// Violations are why the outcome is Denied, sorted by policy, field, message.
	Violations []Violation
	// Warnings deny nothing; sorted in the same way.
	Warnings []Violation
	// Problem says why the outcome is NotEvaluated; empty otherwise.
	Problem string
	// Digest identifies the set of policies that were evaluated.
	Digest string
}

// Violation is one objection of one policy.
type Violation struct {
	// Policy is the name of the ExportPolicy.
	Policy string
	// Reason is one word from the policy's metadata, such as InvalidServiceType.
	Reason string
	// Field is the path of the offending field, such as
	// metadata.annotations["comity.dev/export-to"].
	Field string
	// Message says what is wrong; Remedy what to do about it.
	Message string
	Remedy  string
}

// String is the violation for users: policy, field, what is wrong, remedy.
func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%s] ", v.Policy)
	if v.Field != "" {
		fmt.Fprintf(&b, "%s: ", v.Field)
	}
	b.WriteString(v.Message)
	if !strings.HasSuffix(v.Message, ".") {
		b.WriteString(".")
	}
	if v.Remedy != "" {
		fmt.Fprintf(&b, " Remedy: %s", v.Remedy)
	}
	return b.String()
}
