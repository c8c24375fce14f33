// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/lru"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
)

func TestDestinationsAreGroupedByWhatTheyPublish(t *testing.T) {
	present := func(owner string) decision.PeerNamespace {
		return decision.PeerNamespace{Presence: decision.Present, Labels: map[string]string{"owner": owner}}
	}
	absent := decision.PeerNamespace{Presence: decision.Absent, Labels: map[string]string{}}
	peers := map[string]decision.Peer{
		"b": {Namespace: present("y"), Labels: map[string]string{"region": "eu"}}, "c": {Labels: map[string]string{}, Namespace: absent}, "d": {Labels: map[string]string{}, Namespace: present("x")},
		"e": {Namespace: present("y"), Labels: map[string]string{"region": "us"}}, "f": {Namespace: decision.PeerNamespace{Presence: decision.Unknown}},
		// Not the same as two labels, whatever they are joined with.
		"g": {Namespace: decision.PeerNamespace{Presence: decision.Present, Labels: map[string]string{"owner": "y,a=b"}}},
		"h": {Namespace: decision.PeerNamespace{Presence: decision.Present, Labels: map[string]string{"owner": "y", "a": "b"}}},
	}
	for _, tc := range []struct {
		name  string
		scope decision.Scope
		want  []decision.Destination
	}{
		{"everywhere, in the order of the first cluster", decision.Scope{All: true}, []decision.Destination{
			{Clusters: []string{"b", "e"}, Namespace: present("y")}, {Clusters: []string{"c"}, Namespace: absent}, {Clusters: []string{"d"}, Namespace: present("x")},
			{Clusters: []string{"f"}, Namespace: peers["f"].Namespace}, {Clusters: []string{"g"}, Namespace: peers["g"].Namespace}, {Clusters: []string{"h"}, Namespace: peers["h"].Namespace},
		}},
		{"where the scope is", decision.Scope{Clusters: []string{"d", "e"}}, []decision.Destination{
			{Clusters: []string{"d"}, Namespace: present("x")}, {Clusters: []string{"e"}, Namespace: present("y")},
		}},
		{"strangers are no members", decision.Scope{Clusters: []string{"z"}}, nil},
		{"a scope that cannot be read is nowhere", decision.Scope{Problem: "unreadable"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			view := &peerView{peers: peers, destinations: lru.New(maxScopes)}
			for range 2 { // computed, then kept
				if diff := cmp.Diff(tc.want, view.of(tc.scope)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

// table is what the peers publish; it counts how often it is read.
type table struct {
	presence decision.Presence
	reads    int
}

func (p *table) Members() []model.Member { p.reads++; return []model.Member{{ID: "b"}} }
func (p *table) Namespace(string) map[model.ClusterID]decision.PeerNamespace {
	return map[model.ClusterID]decision.PeerNamespace{"b": {Presence: p.presence}}
}

func TestPeersAreReadAgainAfterAChange(t *testing.T) {
	cache, peers := NewPeerCache(), &table{presence: decision.Present}
	seen := func() decision.Presence { return cache.view(peers, "shop").peers["b"].Namespace.Presence }
	for range 3 {
		if got := seen(); got != decision.Present {
			t.Errorf("got %s", got)
		}
	}
	if peers.reads != 1 {
		t.Errorf("read %d times, want once", peers.reads)
	}
	peers.presence = decision.Absent
	cache.Changed()
	if got := seen(); got != decision.Absent {
		t.Errorf("after a change: got %s", got)
	}
	for n := range 3 * maxNamespaces {
		cache.view(peers, fmt.Sprint(n))
	}
	if n := cache.namespaces.Load().Len(); n > maxNamespaces {
		t.Errorf("%d namespaces are kept", n)
	}
	view := cache.view(peers, "shop")
	for n := range 3 * maxScopes {
		view.of(decision.Scope{Clusters: []string{fmt.Sprint(n)}})
	}
	if n := view.destinations.Len(); n > maxScopes {
		t.Errorf("%d scopes are kept", n)
	}
	var none *PeerCache
	if got := none.view(peers, "shop").peers["b"].Namespace.Presence; got != decision.Absent {
		t.Errorf("without a cache: got %s", got)
	}
}

// changing is changed while it is read.
type changing struct {
	table
	cache *PeerCache
}

func (p *changing) Namespace(name string) map[model.ClusterID]decision.PeerNamespace {
	read := p.table.Namespace(name)
	if p.presence == decision.Present {
		p.presence = decision.Absent
		p.cache.Changed()
	}
	return read
}

func TestAChangeWhileThePeersAreReadIsNotMissed(t *testing.T) {
	cache := NewPeerCache()
	peers := &changing{table{presence: decision.Present}, cache}
	cache.view(peers, "shop")
	if got := cache.view(peers, "shop").peers["b"].Namespace.Presence; got != decision.Absent {
		t.Errorf("got %s, which is over", got)
	}
}
