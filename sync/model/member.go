// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Member is a peer as this cluster knows it.
type Member struct {
	ID ClusterID
	// Synced is true once everything that the peer shares with this cluster
	// was read successfully since this process started. Until then what the
	// peer exports is unknown, which is not the same as nothing.
	Synced bool
	// Reported is true once the peer's ImportRecords were read, or are known not to
	// be readable. It may become true after Synced. Until then, a missing report of
	// an export means nothing.
	Reported bool
	// Liveness is the state of the peer's heartbeat.
	Liveness Liveness
	// Labels are those of the Peer, which the local administrator sets. Scopes and
	// policies see them.
	Labels map[string]string
	// ConfirmMissingBefore confirms that the exports of the peer that are missing since
	// this time or before are gone; zero confirms nothing.
	ConfirmMissingBefore time.Time
}

// LivenessState is the state of a peer's heartbeat, its Lease in the exchange.
type LivenessState int

// The zero value is invalid, so that a forgotten field is noticed. A change of the
// Lease, seen by this cluster, is a heartbeat; the peer's clock plays no part in it.
const (
	// Connected: the peer's Lease changed lately, or the peer is still being
	// connected to for the first time since start.
	Connected LivenessState = iota + 1
	// Stale: no heartbeat was seen for a while. All that was read stays in use.
	Stale
	// Lost: no heartbeat was seen for so long that the peer may be gone. Its
	// endpoints are withdrawn where a probe fails as well.
	Lost
)

// String is the word that conditions and metrics use.
func (s LivenessState) String() string {
	switch s {
	case Connected:
		return "Connected"
	case Stale:
		return "Stale"
	case Lost:
		return "Lost"
	}
	return fmt.Sprintf("LivenessState(%d)", int(s))
}

// Liveness is the state of a peer, and since when. It changes only with the state,
// so that a heartbeat of a Connected peer causes no change.
type Liveness struct {
	State LivenessState
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
	ID ClusterID
	// OnlyLiveness is true if nothing changed but its Liveness, and no heartbeat is back:
	// that one may come together with changes of its exports.
	OnlyLiveness bool
}

// OwnIDClaim is a Peer that has the id of this cluster and names another cluster.
type OwnIDClaim struct {
	// Peer is its name, the id of this cluster.
	Peer string
	// ClusterUID is that of the other cluster.
	ClusterUID types.UID
}

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
