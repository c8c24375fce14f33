// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
)

// PeerSpec is what the administrator of this cluster says of another member.
//
// +kubebuilder:validation:XValidation:rule="(has(self.removed) && self.removed) || (has(self.clusterset) && has(self.clusterUID) && has(self.kubeconfigSecret))",message="clusterset, clusterUID and kubeconfigSecret are required unless removed is true; kubectl comity join sets them"
type PeerSpec struct {
	// clusterset is the set of that cluster. A Peer of another set than this cluster's is
	// not read.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ClusterSet string `json:"clusterset,omitempty"`
	// clusterUID is the UID of the kube-system Namespace of that cluster. A cluster with
	// another UID is not read, so that no restored or rebuilt cluster is welcome before
	// kubectl comity join --replace accepts it.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	ClusterUID types.UID `json:"clusterUID,omitempty"`
	// kubeconfigSecret is the name of a Secret in Comity's namespace. Its key kubeconfig
	// holds the credential by which that cluster is read. The agent renews the token in it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	KubeconfigSecret string `json:"kubeconfigSecret,omitempty"`
	// acceptedCIDRs are the address ranges in which endpoints of that cluster may be, with
	// no bit set beyond the prefix. Without any, no endpoint of that cluster is imported.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.all(c, isCIDR(c) && cidr(c).masked() == cidr(c))",message="expected address ranges such as 10.1.0.0/16 or fd00:1::/48, with no bit set beyond the prefix"
	AcceptedCIDRs []string `json:"acceptedCIDRs,omitempty"`
	// acceptedNamespaces are the namespaces whose exports are imported from that cluster:
	// names, and globs with *. Without the field those of all namespaces are; an empty
	// list accepts none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9*]([a-z0-9*-]*[a-z0-9*])?$`
	AcceptedNamespaces *[]string `json:"acceptedNamespaces,omitempty"`
	// confirmMissingBefore confirms that the exports of that cluster that are missing
	// since this time or before are gone: what was imported of them is removed.
	// kubectl comity confirm missing sets it.
	// +optional
	ConfirmMissingBefore *metav1.Time `json:"confirmMissingBefore,omitempty"`
	// drained makes the endpoints of that cluster the last resort here: they are used only
	// where no other cluster has a ready one. kubectl comity drain sets it, kubectl comity
	// resume removes it.
	// +optional
	Drained *model.Drained `json:"drained,omitempty"`
	// ignoreDrain does not follow that cluster when it drains itself for all members
	// (kubectl comity drain --self).
	// +optional
	IgnoreDrain bool `json:"ignoreDrain,omitempty"`
	// removed states that the cluster is no member any more: what was imported of it is
	// removed. kubectl comity leave sets it, and deletes the Peer when condition Removed
	// is true. A Peer that is deleted otherwise removes nothing.
	// +optional
	Removed bool `json:"removed,omitempty"`
}

// Types of the conditions of a Peer.
const (
	// PeerConnected: the heartbeat of the cluster is seen, and all that it shares with
	// this one was read. Reasons: those of sync/remote, Lost, and those for which
	// the Peer is refused; Unknown with Connecting until anything is known.
	PeerConnected = "Connected"
	// PeerAccepted: the spec, the Secret and the cluster that answers are used as they
	// are. Reasons name what is refused. The cluster is read all the same if only its
	// latest kubeconfig or token is refused, and an earlier one works.
	PeerAccepted = "Accepted"
	// PeerRemoved: spec.removed is true, and nothing is imported from the cluster any more.
	PeerRemoved = "Removed"
	// PeerRecordsValid: everything that the cluster publishes can be used. Otherwise some
	// records are refused; the message names the first.
	PeerRecordsValid = "RecordsValid"
	// PeerWithinLimits: the cluster publishes no more, and no more often, than is read of
	// one member.
	PeerWithinLimits = "WithinLimits"
	// PeerDrained: its endpoints are the last resort here, or are becoming that. The condition
	// exists only while that is so.
	PeerDrained = "Drained"
	// PeerComplete: no export of the cluster is missing, and none waits for a
	// confirmation. Reasons: Missing, TakeoverHeld. The message names the commands.
	PeerComplete = "Complete"
)

// PeerStatus is what is known of another member. Nothing is decided on it, and it is
// written only when something in it but lastHeartbeat changes. What is not known since the agent
// started stays as it was written last.
type PeerStatus struct {
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// lastHeartbeat is when the last heartbeat was seen, as of the last change of
	// condition Connected: heartbeats alone change nothing.
	// +optional
	LastHeartbeat *metav1.Time `json:"lastHeartbeat,omitempty"`
	// version is the version of Comity in that cluster.
	// +optional
	Version string `json:"version,omitempty"`
	// tokenExpires is when the credential in the Secret expires.
	// +optional
	TokenExpires *metav1.Time `json:"tokenExpires,omitempty"`
	// exports counts what that cluster exports to this one.
	// +optional
	Exports PeerExports `json:"exports,omitempty"`
}

// PeerExports counts the exports of one cluster.
type PeerExports struct {
	// read are those that were read.
	Read int32 `json:"read"`
	// refused are those that are not imported: their records are not valid, or the spec of
	// the Peer does not accept their namespaces.
	Refused int32 `json:"refused"`
	// missing are those that disappeared without a statement of that cluster, and are kept.
	Missing int32 `json:"missing"`
	// waiting are those that would change an import, and wait for a confirmation.
	Waiting int32 `json:"waiting"`
}

// Peer is another member of the clusterset, as the administrator of this cluster sees it.
// Its name is the id of that cluster. Its labels are the administrator's: annotation
// comity.dev/export-to-selector and policies see them.
//
// A Peer that is absent or being deleted, and a Secret that is missing or refused, mean
// that the cluster is not read: what was imported of it stays. Only spec.removed removes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="metadata.name is the id of the cluster: one RFC 1123 label, at most 63 characters, no dot"
// +kubebuilder:printcolumn:name="Connected",type=string,JSONPath=`.status.conditions[?(@.type=="Connected")].status`
// +kubebuilder:printcolumn:name="Drained",type=string,JSONPath=`.status.conditions[?(@.type=="Drained")].status`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Exports",type=integer,JSONPath=`.status.exports.read`
// +kubebuilder:printcolumn:name="Missing",type=integer,JSONPath=`.status.exports.missing`
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.exports.waiting`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Peer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PeerSpec `json:"spec"`
	// +optional
	Status PeerStatus `json:"status,omitempty"`
}

// PeerList is a list of Peer.
// +kubebuilder:object:root=true
type PeerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Peer `json:"items"`
}
