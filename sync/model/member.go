// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Member is a peer as this cluster knows it.
type Member struct {
	ID ClusterID
	// Synced is true once everything that the peer shares with this cluster
	// was read successfully since this process started. Until then what the
	// peer exports is unknown, which is not the same as nothing.
	Synced bool
	// Failing is true if it is not Synced and something is known to keep it from being read.
	Failing bool
	// Reported is true once the peer's ImportRecords were read, and it has reported on
	// everything since its agent started, or they are known not to be readable. It may become
	// true after Synced. Until then, a missing report of an export means nothing.
	Reported bool
	// Liveness is the state of the peer's heartbeat.
	Liveness Liveness
	// Labels are those of the Peer, which the local administrator sets. Scopes and
	// policies see them.
	Labels map[string]string
	// ConfirmMissingBefore confirms that the exports of the peer that are missing since
	// this time or before are gone; zero confirms nothing.
	ConfirmMissingBefore time.Time
	// Drains take the peer out of traffic: that of its Peer, and that of itself.
	Drains []Drain
	// Added is when its Peer was created.
	Added time.Time
}

// Drained takes a cluster out of traffic. A Peer has it as it is, with these descriptions.
// +kubebuilder:object:generate=true
type Drained struct {
	// since is when that began.
	// +optional
	Since metav1.Time `json:"since,omitempty,omitzero"`
	// over is how long it takes until all imports are drained, one after the other; without
	// it, all are drained at once.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	Over metav1.Duration `json:"over,omitempty,omitzero"`
	// force makes its endpoints not ready also where no other cluster has a ready one.
	// +optional
	Force bool `json:"force,omitempty"`
}

// Drain is why a cluster is out of traffic here.
type Drain struct {
	Drained
	// Self is true if the cluster drains itself for all.
	Self bool
}

// Begins is when the drain reaches an import: after a share of Over that depends on its key
// alone, so that a restart changes nothing. It is the zero time if that is at once.
func (d Drain) Begins(key types.NamespacedName) time.Time {
	if d.Over.Duration <= 0 {
		return time.Time{}
	}
	sum := sha256.Sum256([]byte(key.String()))
	share := float64(binary.BigEndian.Uint32(sum[:])) / (1 << 32)
	return d.Since.Add(time.Duration(share * float64(d.Over.Duration)))
}

// LivenessState is the state of a peer's heartbeat, its Lease in the exchange, as conditions
// and metrics call it.
type LivenessState string

// The zero value is invalid, so that a forgotten field is noticed. A change of the
// Lease, seen by this cluster, is a heartbeat; the peer's clock plays no part in it.
const (
	// Connected: the peer's Lease changed lately, or the peer is still being
	// connected to for the first time since start.
	Connected LivenessState = "Connected"
	// Lost: no heartbeat was seen for so long that the peer may be gone. All that was read
	// stays in use, but for its endpoints while it is Silent.
	Lost LivenessState = "Lost"
)

// Liveness is the state of a peer, and since when. It changes only with the state,
// so that a heartbeat of a Connected peer causes no change.
type Liveness struct {
	State LivenessState
	// Silent is true of a Lost peer of which no probed endpoint answers either.
	Silent bool
	// Seen is true once a heartbeat was seen since this process started. Before that, the
	// slices that exist say whether the peer is down.
	Seen bool
	// Since is when the state began. Confirmed is when the last heartbeat was seen;
	// zero if none was since start. Both are this cluster's time in whole seconds,
	// and zero while Connected.
	Since, Confirmed time.Time
	// Reason and Message say what keeps the peer from being read, in the words of the
	// conditions of its Peer; empty if nothing is known to.
	Reason, Message string
}

// MemberChange is a change of what is known of a member.
type MemberChange struct {
	ID   ClusterID
	What MemberChanged
	// Key is what changed, of ExportChanged, EndpointsChanged, ReportChanged and NamespaceChanged.
	Key types.NamespacedName
}

// MemberChanged is what of a member changed.
type MemberChanged int

const (
	// MemberOther is anything but the following: a Peer appeared or went, was removed,
	// became synced or ceased to be, or something else of it changed.
	MemberOther MemberChanged = iota
	// HeartbeatFirst means that its first heartbeat was seen. It is as Connected as before.
	HeartbeatFirst
	// HeartbeatMissing means that it is Lost, or whether it is Silent changed.
	HeartbeatMissing
	// HeartbeatBack means that it is Connected again. Changes of its exports may come with that.
	HeartbeatBack
	// ExportChanged means that what it says of an export did, but for the endpoints.
	ExportChanged
	// EndpointsChanged means that a slice of an export did.
	EndpointsChanged
	// ReportChanged means that its report on an export did; on any, if Key is zero.
	ReportChanged
	// NamespaceChanged means that what it says of the namespace called Key.Name did.
	NamespaceChanged
)

// LocalCluster holds the properties of this cluster that importing depends on.
type LocalCluster struct {
	// Families are those that a Service can have here, the default one first.
	// None means that they are not known.
	Families []corev1.IPFamily
	// Zones are the topology zones of the nodes, sorted, each once.
	Zones []string
	// PodCIDRs and ServiceCIDRs are this cluster's own address ranges. No peer
	// can have an endpoint in them.
	PodCIDRs, ServiceCIDRs []netip.Prefix
}

// ClusterID names a member of the clusterset: one RFC 1123 label, at most 63
// characters (KEP-2149; CoreDNS serves no id with a dot in it). The zero value
// is no cluster.
type ClusterID string

// ParseClusterID checks s and returns it as a ClusterID. The error says what is
// wrong with s and what a cluster id looks like; it does not say where s came
// from, which is the caller's to add.
func ParseClusterID(s string) (ClusterID, error) {
	if s == "" {
		return "", fmt.Errorf("a cluster id is empty; expected one RFC 1123 label such as \"cluster-1\"")
	}
	if problems := validation.IsDNS1123Label(s); len(problems) > 0 {
		return "", fmt.Errorf("cluster id %q is not one RFC 1123 label (lower-case letters, digits and '-', at most 63 characters, no dot): %s",
			s, strings.Join(problems, "; "))
	}
	return ClusterID(s), nil
}

// Namespaces are names of namespaces and patterns of names, in the order given; nil
// means all. See path.Match.
type Namespaces []string

// Contains reports whether the namespace called name is among them.
func (n Namespaces) Contains(name string) bool {
	return n == nil || slices.ContainsFunc(n, func(pattern string) bool {
		matched, err := path.Match(pattern, name)
		return err == nil && matched
	})
}

// OnLost is what happens to the endpoints of a lost cluster that do not answer a
// probe either. It never applies to a cluster that is not Lost.
type OnLost string

// The values of AnnotationOnLost.
const (
	// OnLostWithdrawUnlessLast marks them not ready, unless no other cluster
	// has a ready endpoint. It is the default.
	OnLostWithdrawUnlessLast OnLost = "withdraw-unless-last"
	// OnLostWithdraw marks them not ready even if none is left.
	OnLostWithdraw OnLost = "withdraw"
	// OnLostKeep leaves them as they are.
	OnLostKeep OnLost = "keep"
)

// ParseOnLost reads the value of AnnotationOnLost; empty is the default. The
// error names what was expected, and comes with the default.
func ParseOnLost(text string) (OnLost, error) {
	known, value := []OnLost{OnLostWithdrawUnlessLast, OnLostWithdraw, OnLostKeep}, cmp.Or(OnLost(text), OnLostWithdrawUnlessLast)
	if !slices.Contains(known, value) {
		return OnLostWithdrawUnlessLast, fmt.Errorf("%q is unknown; expected one of %s", text, Join(known, ", "))
	}
	return value, nil
}

// LeaderLease is the name of the Lease, in the agent's own namespace, whose
// holder is the replica that writes. Its annotation AnnotationAgent describes the
// installed agent to `kubectl comity`.
const LeaderLease = "comity-leader"

// AnnotationAgent is that on the leader Lease with the AgentInfo of the agent.
const AnnotationAgent = "comity.dev/agent"

// ExchangeMode says where a member publishes.
type ExchangeMode string

// The modes of an agent.
const (
	// ExchangeMesh: each member publishes in its own API server.
	ExchangeMesh ExchangeMode = "mesh"
	// ExchangeHub: all members publish in one API server.
	ExchangeHub ExchangeMode = "hub"
)

// AgentInfo is what an installed agent states about itself on its leader Lease.
type AgentInfo struct {
	ID      ClusterID    `json:"id"`
	Set     string       `json:"clusterset"`
	Version string       `json:"version"`
	Mode    ExchangeMode `json:"exchange"`
	// ServiceAccount is the account that the agent's Pods run as, in the
	// namespace of the Lease.
	ServiceAccount string `json:"serviceAccount"`
	// PodCIDRs and ServiceCIDRs are the ranges given to the agent by flag; empty
	// if it reads them from the cluster.
	PodCIDRs     []netip.Prefix `json:"podCIDRs,omitempty"`
	ServiceCIDRs []netip.Prefix `json:"serviceCIDRs,omitempty"`
}

// Annotations encodes i for the leader Lease.
func (i AgentInfo) Annotations() map[string]string {
	text, _ := json.Marshal(i) // holds nothing that JSON cannot express
	return map[string]string{AnnotationAgent: string(text)}
}

// ParseAgentInfo reads the annotations of a leader Lease, which no one but the agent writes.
func ParseAgentInfo(annotations map[string]string) (info AgentInfo, err error) {
	if err = json.Unmarshal([]byte(annotations[AnnotationAgent]), &info); err == nil {
		_, err = ParseClusterID(string(info.ID))
	}
	if err != nil {
		return AgentInfo{}, fmt.Errorf("annotation %s: %w", AnnotationAgent, err)
	}
	return info, nil
}

// ParsePrefixes reads address ranges. One with bits set after the prefix is refused: it is not clear what was meant.
// So is an IPv4-mapped IPv6 one, which contains no address of a pod.
func ParsePrefixes(texts []string) (prefixes []netip.Prefix, err error) {
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil || prefix != prefix.Masked() || prefix.Addr().Is4In6() {
			return nil, fmt.Errorf("%s is not an address range; expected one such as 10.244.0.0/16, with no bit set after the prefix", Quote(text))
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}

// ReadPrefixes reads address ranges that may be listed in one text, and leaves out what is
// none: an object of the API has what the API server accepted.
func ReadPrefixes(texts ...string) (all []netip.Prefix) {
	for text := range strings.SplitSeq(strings.Join(texts, ","), ",") {
		if prefix, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil {
			all = append(all, prefix.Masked())
		}
	}
	return all
}
