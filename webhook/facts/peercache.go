// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/utils/lru"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
)

const (
	// maxNamespaces is for how many namespaces a PeerCache keeps what peers publish, as
	// many as the engine keeps terms of.
	maxNamespaces = 256
	// maxScopes is for how many scopes it keeps the destinations of one namespace: most
	// exports of a namespace go to all clusters or to the same ones.
	maxScopes = 16
)

// PeerCache keeps what policies may know of the peers, by namespace, until Changed is
// called: with many clusters, most of the input is the same for every request. A nil
// PeerCache keeps nothing. All methods are safe for concurrent use.
type PeerCache struct {
	revision   atomic.Uint64
	namespaces *lru.Cache
}

// NewPeerCache returns a PeerCache that holds nothing.
func NewPeerCache() *PeerCache { return &PeerCache{namespaces: lru.New(maxNamespaces)} }

// Changed drops everything. Call it after each change of what Peers gives, before
// those are notified who have exports evaluated again.
func (c *PeerCache) Changed() { c.revision.Add(1) }

// view is what the peers publish about the namespace of that name.
func (c *PeerCache) view(peers Peers, namespace string) *peerView {
	if c == nil {
		return newPeerView(peers, namespace)
	}
	// Before the peers are read, so that a change in between is not missed.
	revision := c.revision.Load()
	if kept, found := c.namespaces.Get(namespace); found {
		if v, ok := kept.(*peerView); ok && v.revision == revision {
			return v
		}
	}
	v := newPeerView(peers, namespace)
	v.revision = revision
	c.namespaces.Add(namespace, v)
	return v
}

// peerView is what the peers publish about one namespace at one time. Nothing in it
// changes, and evaluations share it.
type peerView struct {
	revision uint64
	members  []model.Member
	peers    map[string]decision.Peer

	mu           sync.Mutex
	destinations map[string][]decision.Destination // by scope
}

func newPeerView(peers Peers, namespace string) *peerView {
	members := peers.Members()
	return &peerView{
		members: members, peers: describePeers(members, peers.Namespace(namespace)),
		destinations: map[string][]decision.Destination{},
	}
}

// of are the destinations of an export with that effective scope.
func (v *peerView) of(scope decision.Scope) []decision.Destination {
	key := "" // everywhere: no list of clusters is empty, unless it has a problem
	switch {
	case scope.Problem != "":
		return []decision.Destination{}
	case !scope.All:
		key = strings.Join(scope.Clusters, ",")
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	kept, found := v.destinations[key]
	if !found {
		kept = destinations(v.peers, scope)
		if len(v.destinations) < maxScopes {
			v.destinations[key] = kept
		}
	}
	return kept
}

// destinations groups the peers in the scope by what they publish of the namespace,
// in the order of the first cluster of each group.
func destinations(peers map[string]decision.Peer, scope decision.Scope) []decision.Destination {
	groups := []decision.Destination{}
	for _, id := range slices.Sorted(maps.Keys(peers)) {
		if !scope.All && !slices.Contains(scope.Clusters, id) {
			continue
		}
		namespace := peers[id].Namespace
		at := slices.IndexFunc(groups, func(group decision.Destination) bool {
			return group.Namespace.Presence == namespace.Presence && maps.Equal(group.Namespace.Labels, namespace.Labels)
		})
		if at < 0 {
			at = len(groups)
			groups = append(groups, decision.Destination{Namespace: namespace})
		}
		groups[at].Clusters = append(groups[at].Clusters, id)
	}
	return groups
}

// describePeers describes the members by id. A member whose namespaces were not read
// is included as unknown: its id is a valid target too.
func describePeers(members []model.Member, namespaces []model.MemberNamespace) map[string]decision.Peer {
	peers := make(map[string]decision.Peer, len(members))
	for _, member := range members {
		peers[string(member.ID)] = decision.Peer{Labels: orEmpty(member.Labels), Namespace: decision.PeerNamespace{
			Presence: decision.Unknown, Labels: map[string]string{},
		}}
	}
	for _, ns := range namespaces {
		peer, known := peers[string(ns.Cluster)]
		if !known {
			continue // The peer was removed or added between the two calls.
		}
		peer.Namespace = decision.PeerNamespace{Presence: presences[ns.Presence], Labels: orEmpty(ns.Labels)}
		peers[string(ns.Cluster)] = peer
	}
	return peers
}

// orEmpty is no nil map: policies expect an object.
func orEmpty(labels map[string]string) map[string]string {
	if labels == nil {
		return map[string]string{}
	}
	return labels
}

var presences = map[model.NamespacePresence]decision.Presence{
	model.NamespaceUnknown: decision.Unknown, model.NamespacePresent: decision.Present, model.NamespaceAbsent: decision.Absent,
}
