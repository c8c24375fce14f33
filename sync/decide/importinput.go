// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// ImportInputs are what policies with stage Import decide on for one import: the
// export of each member whose exports were read, and of each cluster that the import
// lists and that was not read. Of the view, Self, Local.Key, Local.Namespace, Peers and
// List count; of a PeerView, the member and what it publishes.
func ImportInputs(v ImportView) []decision.ImportInput {
	var from []decision.ImportInput
	for i := range v.Peers {
		p := &v.Peers[i]
		_, listed := v.List.Find(p.ID)
		if p.Export == nil && !listed {
			continue
		}
		in := decision.ImportInput{
			APIVersion: decision.InputVersion, Cluster: string(v.Self),
			// Without a Peer the labels are not known, which must not be taken for none.
			Source:    decision.ImportSource{Cluster: string(p.ID), Labels: p.Labels, Unknown: !p.Known},
			Namespace: v.Local.Namespace, Unread: p.Export == nil, Imported: listed,
		}
		if e := p.Export; e != nil {
			in.Export = decision.ImportedExport{Type: e.Type, Ports: e.Ports, Labels: e.Labels, Annotations: e.Annotations}
		}
		in.Export.Namespace, in.Export.Name = v.Local.Key.Namespace, v.Local.Key.Name
		from = append(from, in)
	}
	return from
}

// ReadList reads the stored list into the view, and adds each cluster that it names, or of
// which slices exist, and that is no member: it is not read.
func ReadList(v *ImportView) {
	v.List = plan.StoredList(v.Current, v.Local.Key)
	known := map[model.ClusterID]bool{v.Self: true, "": true}
	for i := range v.Peers {
		known[v.Peers[i].ID] = true
	}
	add := func(id model.ClusterID) {
		if !known[id] {
			known[id] = true
			v.Peers = append(v.Peers, PeerView{Published: exchange.Published{Member: model.Member{ID: id, Liveness: model.Liveness{State: model.Lost}}}})
		}
	}
	for _, e := range v.List.Entries {
		add(e.Cluster)
	}
	for _, s := range v.Current.Slices {
		if model.IsManaged(s) {
			add(model.ClusterID(s.Labels[model.LabelSourceCluster]))
		}
	}
}
