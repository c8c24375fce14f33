// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"cmp"
	"maps"
	"slices"
	"strings"
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
type PeerCache struct{ namespaces atomic.Pointer[lru.Cache] }

// NewPeerCache returns a PeerCache that holds nothing.
func NewPeerCache() *PeerCache {
	c := &PeerCache{}
	c.Changed()
	return c
}

// Changed drops everything. Call it after each change of what Peers gives, before
// those are notified who have exports evaluated again.
func (c *PeerCache) Changed() { c.namespaces.Store(lru.New(maxNamespaces)) }

// view is what the peers publish about the namespace of that name.
func (c *PeerCache) view(peers Peers, namespace string) *peerView {
	if c == nil {
		return newPeerView(peers, namespace)
	}
	// Before the peers are read: what is read before a change is not kept after it.
	namespaces := c.namespaces.Load()
	if kept, found := namespaces.Get(namespace); found {
		return kept.(*peerView)
	}
	v := newPeerView(peers, namespace)
	namespaces.Add(namespace, v)
	return v
}

// peerView is what the peers publish about one namespace at one time. Nothing in it
// changes, and evaluations share it.
type peerView struct {
	members      []model.Member
	peers        map[string]decision.Peer
	destinations *lru.Cache // by scope
}

// newPeerView describes the members by id. A member whose namespaces were not read
// is included as unknown: its id is a valid target too.
func newPeerView(peers Peers, namespace string) *peerView {
	v := &peerView{members: peers.Members(), peers: map[string]decision.Peer{}, destinations: lru.New(maxScopes)}
	namespaces := peers.Namespace(namespace) // of other peers than members, if one was removed or added between the two calls
	for _, member := range v.members {
		there := namespaces[member.ID]
		there.Presence = cmp.Or(there.Presence, decision.Unknown)
		v.peers[string(member.ID)] = decision.Peer{Labels: member.Labels, Namespace: there}
	}
	return v
}

// of are the destinations of an export with that effective scope: the peers in it, grouped by what
// they publish of the namespace, in the order of the first cluster of each group.
func (v *peerView) of(scope decision.Scope) []decision.Destination {
	key := strings.Join(scope.Clusters, ",")
	if scope.All {
		key = "*" // no id
	}
	if kept, found := v.destinations.Get(key); found {
		return kept.([]decision.Destination)
	}
	var groups []decision.Destination
	for _, id := range slices.Sorted(maps.Keys(v.peers)) {
		if !scope.All && !slices.Contains(scope.Clusters, id) {
			continue
		}
		namespace := v.peers[id].Namespace
		at := slices.IndexFunc(groups, func(group decision.Destination) bool {
			return group.Namespace.Presence == namespace.Presence && maps.Equal(group.Namespace.Labels, namespace.Labels)
		})
		if at < 0 {
			at = len(groups)
			groups = append(groups, decision.Destination{Namespace: namespace})
		}
		groups[at].Clusters = append(groups[at].Clusters, id)
	}
	v.destinations.Add(key, groups)
	return groups
}
