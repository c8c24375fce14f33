// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Member is a peer as this cluster knows it.
type Member struct {
	ID ClusterID
	// Synced is true once everything that the peer shares with this cluster
	// was read successfully since this process started. Until then what the
	// peer exports is unknown, which is not the same as nothing.
	Synced bool
	// Reported is true once what the peer says of importing from this cluster
	// was read, or it is known that it cannot be. That may come after Synced,
	// which does not wait for it; until then a peer that says nothing of an
	// export may have said it before.
	Reported bool
	// Liveness says whether the peer is heard of now.
	Liveness Liveness
	// Properties are the labels of the peer's Secret: what the local
	// administrator says of the peer, by which scopes select clusters.
	Properties map[string]string
}

// LivenessState says whether a peer is heard of.
type LivenessState int

// The zero value is invalid, so that a forgotten field is noticed. A peer is
// heard of when its Lease in the exchange is seen to change; the clock of the
// peer plays no part in it.
const (
	// Connected: the peer's Lease changed lately, or the peer is still being
	// connected to for the first time since start.
	Connected LivenessState = iota + 1
	// Stale: nothing was heard for a while. All that was read stays in use.
	Stale
	// Lost: nothing was heard for so long that the peer may be gone. Its
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

// Liveness is since when a peer is in a state. It changes only with the state,
// so that a peer that is heard of all the time causes no change at all.
type Liveness struct {
	State LivenessState
	// Since is when the state began, and Confirmed when the peer was last heard
	// of; zero if that was never since start. Both are this cluster's time in
	// whole seconds; both are zero while Connected.
	Since, Confirmed time.Time
	// Reason and Message say what keeps the peer from being read, in the words
	// of the events on its Secret; empty if nothing is known to.
	Reason, Message string
}

// LocalCluster is what this cluster is like, as far as importing depends on it.
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
