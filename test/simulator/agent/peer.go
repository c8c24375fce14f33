// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

// everywhere is accepted from every peer: the tests of sync/exchange are about
// address ranges.
var everywhere = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// Peer is what a process reads of another cluster. Element 0 of a pair is what
// every member may read, element 1 what this cluster alone may.
type Peer struct {
	ID              model.ClusterID
	exports, slices [2]*apiserver.Cache
	members         *apiserver.Cache
	namespaces      *apiserver.Cache
}

// Connect begins to read a peer; nothing is read before Feeds are followed.
func (p *Process) Connect(id model.ClusterID, server *apiserver.Server) *Peer {
	shared := model.ExchangeNamespace(id)
	peer := &Peer{ID: id, members: server.Watch("MemberRecord", shared), namespaces: server.Watch("NamespaceRecord", shared)}
	for i, namespace := range []string{shared, model.ScopedExchangeNamespace(id, p.ID)} {
		peer.exports[i], peer.slices[i] = server.Watch("ExportRecord", namespace), server.Watch("EndpointSlice", namespace)
	}
	p.Peers[id] = peer
	return peer
}

// Feeds are all that is read of the peer, each at its own pace.
func (r *Peer) Feeds() []*apiserver.Cache {
	return []*apiserver.Cache{r.members, r.namespaces, r.exports[0], r.exports[1], r.slices[0], r.slices[1]}
}

// Synced is true once everything was read and the peer says that it has
// published everything.
func (r *Peer) Synced() bool {
	for _, f := range r.Feeds() {
		if !f.Listed() {
			return false
		}
	}
	record, is := r.members.Get(model.ExchangeNamespace(r.ID), string(r.ID)).(*exchangev1alpha1.MemberRecord)
	return is && record.Spec.ClusterID == string(r.ID) && record.Spec.ClusterSet == ClusterSet
}

// export is what the peer exports as key; the younger of two records counts,
// and of two of one second the one that only we can read.
func (r *Peer) export(key types.NamespacedName) (model.Export, bool) {
	var best *exchangev1alpha1.ExportRecord
	for i, namespace := range r.exchanges() {
		record, is := r.exports[i].Get(namespace, model.RecordName(key.Namespace, key.Name)).(*exchangev1alpha1.ExportRecord)
		if is && (best == nil || !record.CreationTimestamp.Before(&best.CreationTimestamp)) {
			best = record
		}
	}
	if best == nil {
		return model.Export{}, false
	}
	out, err := exchange.FromRecord(r.ID, best)
	return out, err == nil && out.Key == key
}

func (r *Peer) exchanges() [2]string {
	return [2]string{r.exports[0].Namespace(), r.exports[1].Namespace()}
}

// copies are the slices that the peer publishes for key, each name once.
func (r *Peer) copies(key types.NamespacedName) []*discoveryv1.EndpointSlice {
	byName := map[string]*discoveryv1.EndpointSlice{}
	for _, cache := range r.slices {
		for o := range cache.Each {
			s := asSlice(o)
			if of, _, is := exchange.SliceKey(s); !is || of != key {
				continue
			}
			if other := byName[s.Name]; other == nil || !s.CreationTimestamp.Before(&other.CreationTimestamp) {
				byName[s.Name] = s
			}
		}
	}
	var out []*discoveryv1.EndpointSlice
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if s, _ := exchange.CleanSlice(byName[name], exchange.Filter{Accepted: everywhere}); s != nil {
			out = append(out, s)
		}
	}
	return out
}

func (r *Peer) addKeys(keys map[types.NamespacedName]bool) {
	for _, cache := range r.exports {
		addRecords(keys, cache)
	}
}
