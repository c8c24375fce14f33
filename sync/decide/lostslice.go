// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"maps"
	"slices"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// lostSlices are, by cluster, the source slices that exports name and of which no
// copy is published any more, although something was imported of them: their
// publisher lost the copies. One that is new is named before it can be read, and is
// not among them. A copy of which nothing is accepted was read, and is not lost.
func (i *importing) lostSlices() map[model.ClusterID][]string {
	out := map[model.ClusterID][]string{}
	for n := range i.Peers {
		p := &i.Peers[n]
		if !i.sources[p.ID].State.IsRead() || !p.Synced {
			continue
		}
		published := map[string]bool{}
		for _, s := range p.Slices {
			published[s.Annotations[model.AnnotationSourceSlice]] = true
		}
		for _, s := range i.derivedOf(p.ID) {
			source := s.Annotations[model.AnnotationSourceSlice]
			if !published[source] && slices.Contains(p.Export.Slices, source) && !slices.Contains(out[p.ID], source) {
				out[p.ID] = append(out[p.ID], source)
			}
		}
		slices.Sort(out[p.ID])
	}
	return out
}

func lostSliceProblems(in *plan.ImportInput) []model.Problem {
	var out []model.Problem
	for _, id := range slices.Sorted(maps.Keys(in.LostSlices)) {
		names := in.LostSlices[id]
		others := ""
		if len(names) > 1 {
			others = fmt.Sprintf(" and those of %d more", len(names)-1)
		}
		out = append(out, model.Problem{Reason: model.ReasonSliceMissing, Cluster: id, Message: fmt.Sprintf(
			"the copy of EndpointSlice %s/%s%s that cluster %s published is gone, and the record of the export still names it, so the endpoints that were imported are kept; "+
				"Comity in cluster %s publishes it again: check that it runs, and its exchange namespaces", in.Key.Namespace, names[0], others, id, id)})
	}
	return out
}
