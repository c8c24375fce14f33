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
	"slices"
	"strings"
	"time"

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

// Input is everything that a policy may use. An evaluation of an Input that shares
// Destinations and Peers with an earlier one need not convert them again.
type Input struct {
	APIVersion string    `json:"apiVersion"`
	Operation  Operation `json:"operation"`
	Subject    Subject   `json:"subject"`
	// UserInfo is the user who made the request; nil in an audit.
	UserInfo *UserInfo `json:"userInfo,omitempty"`
	// Object is the ServiceExport as it would be stored; never nil. Policies see what
	// AsWritten leaves of it and of OldObject.
	Object *mcsv1beta1.ServiceExport `json:"object"`
	// OldObject is the ServiceExport before an update of it.
	OldObject *mcsv1beta1.ServiceExport `json:"oldObject,omitempty"`
	// Before is the input of an audit of OldObject, for policies with spec.existing Keep:
	// what is wrong with a published export already does not refuse an update of it. nil
	// unless the request updates a published export. Policies do not see it.
	Before *Input `json:"-"`
	// Published is true if the export is published in the exchange, so that other clusters
	// read it now.
	Published bool `json:"published"`
	// Kept is what the record of a published export says about its violations; see Ratchet.
	// Policies do not see it.
	Kept string `json:"-"`
	// Service is the Service of that name, nil when it does not exist (yet).
	Service *corev1.Service `json:"service"`
	// Ports are those of the Service that are exported: all, or those that the
	// annotation comity.dev/export-ports names.
	Ports []mcsv1beta1.ServicePort `json:"ports"`
	// Namespace is the namespace of the export, nil only if it vanished meanwhile.
	Namespace *corev1.Namespace `json:"namespace"`
	// Cluster is the id of the cluster that decides.
	Cluster string `json:"cluster"`
	// Scope is the scope that the export asks for, NamespaceScope the limit of its namespace.
	Scope          Scope `json:"scope"`
	NamespaceScope Scope `json:"namespaceScope"`
	// EffectiveScope is where the export is published: what both allow, and its
	// selector, if it has one.
	EffectiveScope Scope `json:"effectiveScope"`
	// Destinations are the members in EffectiveScope, in groups of which the namespace
	// has the same presence and the same identity labels, in the order of their first
	// cluster. There are few, however many members there are.
	Destinations []Destination `json:"destinations"`
	// Peers are the other members of the clusterset by cluster id.
	Peers map[string]Peer `json:"peers"`
}

// AsWritten is an export in the one version that policies know, whichever version it was written in,
// and without what Comity and the API server add to it: status, managedFields and
// resourceVersion. So no verdict depends on what is written because of it, and a write of the status
// changes none. The result shares the rest with the export.
func AsWritten(export *mcsv1beta1.ServiceExport) *mcsv1beta1.ServiceExport {
	shallow := *export
	shallow.APIVersion, shallow.Kind = mcsv1beta1.GroupVersion.String(), mcsv1beta1.ServiceExportKindName
	shallow.ManagedFields, shallow.ResourceVersion, shallow.Status = nil, "", mcsv1beta1.ServiceExportStatus{}
	return &shallow
}

// Destination are clusters to which the export is published and which do not differ
// in what they publish of the namespace.
type Destination struct {
	// Clusters are the ids, sorted.
	Clusters []string `json:"clusters"`
	// Namespace is the namespace of the export's namespace name in each of them.
	Namespace PeerNamespace `json:"namespace"`
}

// ImportInput is everything that a policy with stage Import may use. It is asked for
// each source cluster of each import.
type ImportInput struct {
	// APIVersion is InputVersion.
	APIVersion string `json:"apiVersion"`
	// Cluster is the id of the importing cluster, which decides.
	Cluster string `json:"cluster"`
	// Source is the cluster that exports.
	Source ImportSource `json:"source"`
	// Export is what the source cluster published.
	Export ImportedExport `json:"export"`
	// Namespace is the namespace of that name in the importing cluster; nil only if it
	// vanished meanwhile.
	Namespace *corev1.Namespace `json:"namespace"`

	// Imported is true if something of the export is imported now. Policies do not see
	// it, so that none can flap by it; it decides what `existing: Keep` keeps.
	Imported bool `json:"-"`
	// Unread is true while the export is not read: the source cluster was not read
	// since this process started, or lost the record. Then Export has no more than
	// Namespace and Name.
	Unread bool `json:"-"`
}

// ImportSource is a member from which something is imported.
type ImportSource struct {
	Cluster string `json:"cluster"`
	// Labels are those of the member's Peer in the importing cluster, which the
	// administrator of that cluster chooses.
	Labels map[string]string `json:"labels"`
	// Unknown is true while Labels are not known, because the Peer is missing or
	// refused.
	Unknown bool `json:"-"`
}

// ImportedExport is an export as the source cluster published it.
type ImportedExport struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Type is ClusterSetIP or Headless.
	Type  mcsv1beta1.ServiceImportType `json:"type"`
	Ports []mcsv1beta1.ServicePort     `json:"ports"`
	// Labels and Annotations are those that the exporter adds to the import.
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	// Tiers are those that the import has here if this export decides it: those of the
	// ServiceImport, of the export, or of the Namespace; empty if there are none.
	Tiers []string `json:"tiers"`
}

// UserInfo is the user who made the request.
type UserInfo struct {
	Username string   `json:"username"`
	Groups   []string `json:"groups"`
}

// Scope is a set of clusters: a parsed comity.dev/export-to annotation, or what
// several annotations allow.
type Scope struct {
	// All is true when no annotation narrows the scope.
	All bool `json:"all"`
	// Clusters are the ids, sorted.
	Clusters []string `json:"clusters"`
	// Problem says why an annotation could not be read, or, of EffectiveScope, why no
	// cluster is left; empty otherwise.
	Problem string `json:"problem,omitempty"`
}

// Peer is another member of the clusterset.
type Peer struct {
	// Labels are those of the Peer in this cluster, which the local
	// administrator chooses.
	Labels map[string]string `json:"labels"`
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
	return [...]string{NotEvaluated: "NotEvaluated", Allowed: "Allowed", Denied: "Denied"}[o]
}

// Verdict is the answer of all policies together.
type Verdict struct {
	Outcome Outcome
	// Violations are why the outcome is Denied, sorted by policy, field, message.
	Violations []Violation
	// Warnings deny nothing; sorted in the same way.
	Warnings []Violation
	// Problem says why the outcome is NotEvaluated, or what could not be evaluated although
	// it is Denied; empty otherwise.
	Problem string
	// Failed are the names of the ExportPolicies that are the cause of the Problem,
	// sorted; none if the cause is another.
	Failed []string
	// Digest identifies the set of policies that were evaluated.
	Digest string
	// Publication is that of the input.
	Publication Publication
	// Kept is what the record is to say about violations; empty for what it says already.
	Kept string
	// Matched are the names of the ExportPolicies that match the export, those that
	// cannot be used among them; sorted.
	Matched []string
	// Excluded are the clusters to which the export must not be published, though the
	// Outcome is Allowed: every violation of an audit is limited to clusters. Sorted.
	// Violations says why. They count if the Outcome is NotEvaluated, too: what a policy
	// forbids holds whatever the rest would answer.
	Excluded []string
}

// Size is about how much memory the violations and warnings take, in bytes.
func (v Verdict) Size() (size int) {
	for _, one := range slices.Concat(v.Violations, v.Warnings) {
		size += one.Size()
	}
	return size
}

// Violation is one objection of one policy.
type Violation struct {
	// Policy is the name of the ExportPolicy.
	Policy string `json:"policy"`
	// Reason is one word from the policy's metadata, such as InvalidServiceType.
	Reason string `json:"reason,omitempty"`
	// Field is the path of the offending field, such as
	// metadata.annotations["comity.dev/export-to"].
	Field string `json:"field,omitempty"`
	// Message says what is wrong; Remedy what to do about it.
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
	// Clusters are those to which the violation is limited, sorted: in an audit only
	// these lose the export. None: all do.
	Clusters []string `json:"clusters,omitempty"`
	// Grace is how long an export that is published stays so after the violation was
	// first found; from the spec of the policy.
	Grace time.Duration `json:"-"`
	// Softening is why a denial is among the warnings.
	Softening Softening `json:"-"`
	// Exception is until when the violation is excepted, and why; empty unless
	// Softening is ByException.
	Exception string `json:"-"`
}

// Size is about how much memory it takes, in bytes.
func (v Violation) Size() int {
	const beside, forID = 200, 16 // what it takes beside its texts, and what an id does
	size := beside + len(v.Field) + len(v.Message) + len(v.Remedy)
	for _, id := range v.Clusters {
		size += forID + len(id)
	}
	return size
}

// Softening is why a denial of a policy is only a warning.
type Softening int

const (
	// NotSoftened is a denial that denies, or what a policy itself calls a warning.
	NotSoftened Softening = iota
	// ByEnforcement means that spec.enforcement is Warn or Audit.
	ByEnforcement
	// ByExisting means that the export is published already, and spec.existing is Keep.
	ByExisting
	// ByException means that an exception of the policy is in force.
	ByException
	// ByImported means that the export is imported already, and spec.existing is Keep.
	ByImported
)

// prefixes say in a message what a softening means; %s is Violation.Exception.
var prefixes = [...]string{
	NotSoftened:   "",
	ByEnforcement: "would be refused: ",
	ByExisting:    "would be refused if it were not published already: ",
	ByException:   "excepted %s: ",
	ByImported:    "would be refused if it were not imported already: ",
}

// String is the violation for users: policy, what softens it, field, what is wrong, the
// clusters to which it is limited, remedy.
func (v Violation) String() string { return fmt.Sprintf("[%s] %s", v.Policy, v.Description()) }

// Description is String without the name of the policy.
func (v Violation) Description() string {
	var b strings.Builder
	b.WriteString(strings.Replace(prefixes[v.Softening], "%s", v.Exception, 1))
	if v.Field != "" {
		fmt.Fprintf(&b, "%s: ", v.Field)
	}
	b.WriteString(v.Message)
	if !strings.HasSuffix(v.Message, ".") {
		b.WriteString(".")
	}
	if len(v.Clusters) > 0 {
		fmt.Fprintf(&b, " Refused for %s.", Clusters(v.Clusters))
	}
	if v.Remedy != "" {
		fmt.Fprintf(&b, " Remedy: %s", v.Remedy)
	}
	return b.String()
}
