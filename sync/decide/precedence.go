// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/merge"
	"github.com/comity-mcs/comity/sync/model"
)

// deciding is the entry that decides what is served: the first one that is read or kept, or
// out for less than a minute. False if nothing is served.
func (i *importing) deciding() (model.Entry, source, bool) {
	isServed := slices.ContainsFunc(i.list.Entries, func(e model.Entry) bool { return i.sources[e.Cluster].State.IsServed() })
	e, found := model.Find(i.list.Entries, func(e model.Entry) bool {
		return isServed && (i.sources[e.Cluster].State.IsServed() || i.Now.Before(e.Since.Add(turnover)))
	})
	return e, i.sources[e.Cluster], found
}

// freeze is why the properties of the import do not change; nil if they may: the entry that
// decides is not read.
func (i *importing) freeze() *model.Freeze {
	e, s, has := i.deciding()
	if !has || s.State.IsRead() {
		return nil
	}
	f := &model.Freeze{By: i.reported(e)}
	if s.State.IsOut() {
		f.Until = e.Since.Add(turnover)
	}
	return f
}

// differs reports whether an import as it stands is not what its exports are resolved to;
// true if nothing stands.
func differs(standing, resolved *model.Import) bool {
	if resolved == nil || standing == nil {
		return resolved != nil
	}
	return hasOtherProperties(standing, resolved) || slices.ContainsFunc(resolved.Ports, func(p mcsv1beta1.ServicePort) bool {
		return !slices.ContainsFunc(standing.Ports, func(s mcsv1beta1.ServicePort) bool { return s.Name == p.Name })
	})
}

// kept are the clusters of which what exists stays as it is: the sources that are kept, and
// the clusters that were not read and are no source.
func (i *importing) kept() sets.Set[model.ClusterID] {
	out := sets.New(i.unsynced...)
	for id, s := range i.sources {
		if s.State.IsKept() {
			out.Insert(id)
		} else if s.State != "" {
			out.Delete(id)
		}
	}
	return out
}

// reported is the source of an entry of the list as it is reported.
func (i *importing) reported(e model.Entry) model.Source {
	s := i.sources[e.Cluster].Source
	s.Cluster, s.UID, s.Since = e.Cluster, e.UID, e.Since
	s.HasEndpoints = slices.ContainsFunc(i.known(e.Cluster).Slices, func(o *discoveryv1.EndpointSlice) bool { return len(o.Endpoints) > 0 })
	return s
}

// maxChanges bounds how much of the changes is shown, in bytes: the values are text
// of a member.
const maxChanges = 300

// takeovers are the changes of the import that wait for a confirmation: KEP-1645 says
// oldest first, and that lets any member, by a creation time in the past, decide the
// properties of an import that others serve. Resolved is what ordered is resolved to.
func takeovers(resolved *model.Import, ordered []model.Export) []model.Takeover {
	var out []model.Takeover
	for _, e := range merge.OldestFirst(ordered) {
		from := slices.IndexFunc(ordered, func(other model.Export) bool { return other.Cluster == e.Cluster })
		at := slices.IndexFunc(ordered[:from], func(other model.Export) bool { return e.CompareAge(other.SourceExport) < 0 })
		if at < 0 { // which is so of nearly all: nothing is to be resolved
			continue
		}
		byAge := slices.Insert(slices.Delete(slices.Clone(ordered), from, from+1), at, e)
		held := model.Takeover{Decider: ordered[at].SourceExport, By: e.SourceExport}
		changes := merge.Changes(resolved, merge.Resolve(byAge))
		held.Fields = slices.Compact(model.Map(changes, func(c merge.Change) string { return c.Field }))
		texts := model.Map(changes, func(c merge.Change) string { return model.OneLine(c.String(), 120) })
		if held.Changes = model.Bound(strings.Join(texts, "; "), maxChanges); len(changes) > 0 {
			out = append(out, held)
		}
	}
	return out
}
