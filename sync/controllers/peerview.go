// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/model"
)

// ReadPeers is what the members, and the clusters that were removed, are known to export
// as key; with the slices of it only if asked for.
func ReadPeers(from Peers, key types.NamespacedName, withSlices bool) []decide.PeerView {
	before := from.Members()
	exports, withdrawals, notAccepted, namespaces := from.Exports(key), from.Withdrawals(key), from.NotAccepted(key), from.Namespace(key.Namespace)
	sliced := map[model.ClusterID]decide.PeerView{}
	for n := range exports {
		if withSlices {
			var p decide.PeerView
			p.Slices, p.Problems = from.Slices(exports[n].Cluster, key)
			sliced[exports[n].Cluster] = p
		}
	}
	var out []decide.PeerView
	for _, m := range decide.ReadTwice(before, from.Members()) {
		p := sliced[m.ID]
		p.Member, p.Known, p.NotAccepted = m, true, slices.Contains(notAccepted, m.ID)
		for n := range exports {
			if exports[n].Cluster == m.ID && m.Synced {
				p.Export = &exports[n]
			}
		}
		for _, w := range withdrawals {
			if w.Cluster == m.ID {
				p.Withdrawals = append(p.Withdrawals, w)
			}
		}
		for _, n := range namespaces {
			if n.Cluster == m.ID {
				p.Namespace = n
			}
		}
		out = append(out, p)
	}
	for _, id := range from.Removed() {
		out = append(out, decide.PeerView{Member: model.Member{ID: id}, Removed: true})
	}
	return out
}
