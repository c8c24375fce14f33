// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/budget"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

// everywhere is accepted from every peer: the tests of sync/exchange are about
// address ranges.
var everywhere = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// Peer is what a process reads of another cluster: nothing but caches. Element 0 of a pair
// is what every member may read, element 1 what this cluster alone may.
type Peer struct {
	ID              model.ClusterID
	exports, slices [2]*feed
	members         *feed
	namespaces      *feed
	// Confirmed is spec.confirmMissingBefore of the Peer.
	Confirmed time.Time
}

// Connect begins to read a peer; nothing is read before Follow.
func (p *Process) Connect(id model.ClusterID, server *apiserver.Server) *Peer {
	shared, limits := model.ExchangeNamespace(id), budget.New(p.Limits)
	peer := &Peer{ID: id, members: newFeed(server, limits, "MemberRecord", shared), namespaces: newFeed(server, limits, "NamespaceRecord", shared)}
	for i, namespace := range []string{shared, model.ScopedExchangeNamespace(id, p.ID)} {
		peer.exports[i], peer.slices[i] = newFeed(server, limits, "ExportRecord", namespace), newFeed(server, limits, "EndpointSlice", namespace)
	}
	p.Peers[id] = peer
	return peer
}

// Follow reads at most as many changes of each feed of a peer as most gives.
func (p *Process) Follow(id model.ClusterID, most func() int) {
	for _, f := range p.Peers[id].feeds() {
		if n := most(); n > 0 {
			f.Follow(n)
		}
	}
}

// Relist reads a peer that was read before again, each feed up to as many changes
// late as behind gives.
func (p *Process) Relist(id model.ClusterID, behind func() int) {
	if !p.Peers[id].members.Listed() {
		return
	}
	for _, f := range p.Peers[id].feeds() {
		f.Relist(behind())
	}
}

// feeds are all that is read of the peer, each at its own pace.
func (r *Peer) feeds() []*feed {
	return []*feed{r.members, r.namespaces, r.exports[0], r.exports[1], r.slices[0], r.slices[1]}
}

// Synced is true once everything was read and the peer says that it has
// published everything.
func (r *Peer) Synced() bool {
	for _, f := range r.feeds() {
		if !f.Listed() {
			return false
		}
	}
	record, _ := r.members.Get(model.ExchangeNamespace(r.ID), string(r.ID)).(*exchangev1alpha1.MemberRecord)
	problem, _ := exchange.MemberProblem(r.ID, ClusterSet, clusterUID, record)
	return problem == ""
}

// export is what the peer exports as key.
func (r *Peer) export(key types.NamespacedName) (model.Export, bool) {
	record := r.Record(key)
	if record == nil {
		return model.Export{}, false
	}
	out, err := exchange.FromRecord(r.ID, record)
	return out, err == nil && out.Key == key
}

// Record is what this process has read of the peer about key; nil if nothing.
func (r *Peer) Record(key types.NamespacedName) *exchangev1alpha1.ExportRecord {
	return exchange.Newest(r.records(key)...)
}

// records are those of key in both exchange namespaces; nil where there is none.
func (r *Peer) records(key types.NamespacedName) []*exchangev1alpha1.ExportRecord {
	records := make([]*exchangev1alpha1.ExportRecord, 2)
	for i, namespace := range r.exchanges() {
		records[i], _ = r.exports[i].Get(namespace, model.RecordName(key.Namespace, key.Name)).(*exchangev1alpha1.ExportRecord)
	}
	return records
}

// withdrawals are what the peer states of key.
func (r *Peer) withdrawals(key types.NamespacedName) []model.Withdrawal {
	return exchange.Withdrawals(r.ID, r.records(key)...)
}

func (r *Peer) exchanges() [2]string {
	return [2]string{r.exports[0].Namespace(), r.exports[1].Namespace()}
}

// copies are the slices that the peer publishes for key.
func (r *Peer) copies(key types.NamespacedName) []*discoveryv1.EndpointSlice {
	var read [2][]*discoveryv1.EndpointSlice
	for i, cache := range r.slices {
		for o := range cache.Each {
			if of, _, is := exchange.SliceKey(asSlice(o)); is && of == key {
				read[i] = append(read[i], asSlice(o))
			}
		}
	}
	var out []*discoveryv1.EndpointSlice
	for _, s := range exchange.MergeCopies(read[:]...) {
		if good, _ := exchange.CleanSlice(s, exchange.Filter{Accepted: everywhere}); good != nil {
			out = append(out, good)
		}
	}
	return out
}

func (r *Peer) addKeys(keys map[types.NamespacedName]bool) {
	for _, cache := range r.exports {
		addRecords(keys, cache.Cache)
	}
}
