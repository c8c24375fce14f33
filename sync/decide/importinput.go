// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"slices"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
)

// ImportInputs are what policies with stage Import decide on for one import: the
// export of each member whose exports were read, and of each that contributes and was
// not read. Of the view, Self, Local.Key, Local.Namespace, Members, Exports and Current
// count.
func ImportInputs(v ImportView) []decision.ImportInput {
	var from []decision.ImportInput
	standing := Standing(v.Current, v.Self)
	add := func(id model.ClusterID, export decision.ImportedExport, unread bool) {
		export.Namespace, export.Name = v.Local.Key.Namespace, v.Local.Key.Name
		from = append(from, decision.ImportInput{
			APIVersion: decision.InputVersion, Cluster: string(v.Self), Source: importSource(id, v.Members), Export: export,
			Namespace: v.Local.Namespace, Unread: unread,
			Imported: slices.ContainsFunc(standing, func(s model.SourceExport) bool { return s.Cluster == id }),
		})
	}
	for _, e := range v.Exports {
		add(e.Cluster, decision.ImportedExport{Type: e.Type, Ports: e.Ports, Labels: e.Labels, Annotations: e.Annotations}, false)
	}
	for _, s := range standing {
		if !slices.ContainsFunc(v.Exports, func(e model.Export) bool { return e.Cluster == s.Cluster }) {
			add(s.Cluster, decision.ImportedExport{}, true)
		}
	}
	return from
}

// importSource is a source cluster as policies see it. Without the label that makes a
// Secret that of a peer, the labels are those of no Secret in use: it is missing or
// refused, which must not be taken for a Secret without other labels.
func importSource(id model.ClusterID, members []model.Member) decision.ImportSource {
	out := decision.ImportSource{Cluster: string(id), Unknown: true}
	at := slices.IndexFunc(members, func(m model.Member) bool { return m.ID == id })
	if at >= 0 && members[at].Labels[model.LabelClusterID] == string(id) {
		out.Labels, out.Unknown = members[at].Labels, false
	}
	return out
}
