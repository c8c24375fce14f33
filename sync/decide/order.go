// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/merge"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// settling is for how long after a list formed a new export takes the place of its age:
// GitOps creates one export in many clusters at once, in any order. It is also by how much
// such an export may be older than the list.
const settling = 2 * time.Minute

// composition is what an import consists of from now on.
type composition struct {
	list    model.List
	sources map[model.ClusterID]source
	// ordered are the exports that are used, in the order of the list.
	ordered   []model.Export
	freeze    *model.Freeze
	takeovers []model.Takeover
	problems  []model.Problem
	// joined are exports that a list which had formed before did not have.
	joined []model.SourceExport
}

// stored is the list of the import, with this cluster's own export under the id of now,
// unless that may be the id of another cluster.
func (v *ImportView) stored() model.List {
	stored := plan.StoredList(v.Current, v.Local.Key)
	list := model.List{Formed: stored.Formed}
	_, has := stored.Find(v.Self)
	for _, e := range stored.Entries {
		switch {
		case !v.hadID(e):
			list.Entries = append(list.Entries, e)
		case !has:
			e.Cluster, has = v.Self, true
			list.Entries = append(list.Entries, e)
		}
	}
	return list
}

// hadID reports whether an entry is that of this cluster's own export under an id that the
// cluster had before. UIDs are unique: only a member that publishes it under that UID claims it.
func (v *ImportView) hadID(e model.Entry) bool {
	return e.Cluster != v.Self && v.Own.State != model.SourceNotRead && v.Local.Export != nil && e.UID == v.Local.Export.UID &&
		!slices.ContainsFunc(v.Peers, func(p PeerView) bool { return p.ID == e.Cluster && p.Export != nil && p.Export.UID == e.UID })
}

// mayForm reports whether a list may form: every member was read completely, or was waited
// for.
func (v *ImportView) mayForm() bool {
	return !v.Now.Before(v.FormsAt) || !slices.ContainsFunc(v.Peers, func(p PeerView) bool { return p.Known && !p.Removed && !p.Synced })
}

// forming is the list of an import without one: its entries are the clusters of which
// something exists here, in order. What they export is not known. Nothing of an import that
// is to be adopted changes until those of its clusters were read that are members.
func (v *ImportView) forming() model.List {
	list := model.List{Formed: v.Now.UTC().Truncate(time.Second)}
	add := func(id model.ClusterID) {
		isKnown := slices.ContainsFunc(v.Peers, func(p PeerView) bool { return p.ID == id && p.Export != nil })
		if id == v.Self {
			isKnown = v.Own.State != model.SourceNotRead
		}
		if _, has := list.Find(id); id != "" && !has && !isKnown {
			list.Entries = append(list.Entries, model.Entry{Cluster: id, Absent: model.SourcePublished})
		}
	}
	for _, s := range v.Current.Slices {
		adopted := plan.AdoptableFrom(s, v.Local.Key)
		switch {
		case model.IsManaged(s):
			add(model.ClusterID(s.Labels[model.LabelSourceCluster]))
		case v.Takeover && slices.ContainsFunc(v.Peers, func(p PeerView) bool { return p.ID == adopted && p.Known && !p.Synced }):
			add(adopted)
		}
	}
	slices.SortFunc(list.Entries, func(a, b model.Entry) int { return compareIDs(a.Cluster, b.Cluster) })
	return list
}

// unlisted are entries for clusters that are not read, and of which something exists that
// the list does not have: a cache may be late, or a process crashed before it removed it.
func (v *ImportView) unlisted(list model.List) []model.Entry {
	var out []model.Entry
	unsynced := v.unsynced()
	for _, e := range v.forming().Entries {
		if _, has := list.Find(e.Cluster); !has && slices.Contains(unsynced, e.Cluster) {
			out = append(out, e)
		}
	}
	return out
}

// compose applies the table to a list.
func (v *ImportView) compose(list model.List, isForming bool) composition {
	c := composition{list: model.List{Formed: list.Formed}, sources: map[model.ClusterID]source{}}
	var replaced, joined []model.Export
	for _, s := range v.sources(list) {
		c.sources[s.cluster] = s
		switch s.state {
		case model.SourceReplaced:
			replaced = append(replaced, *s.export)
		case model.SourceJoined:
			joined = append(joined, *s.export)
		}
	}
	for _, e := range list.Entries {
		if next, stays := v.entry(e, c.sources[e.Cluster]); stays {
			c.list.Entries = append(c.list.Entries, next)
		}
	}
	standing := plan.Standing(v.Current, v.Local.Key, nil)
	for _, e := range merge.OldestFirst(replaced) {
		v.replace(&c, e, standing)
	}
	for _, e := range merge.OldestFirst(joined) {
		c.join(e, isForming || v.isSettling(list, e))
		if !isForming && v.Now.Sub(list.Formed) >= settling {
			c.joined = append(c.joined, sourceExport(e))
		}
	}
	v.confirm(&c)
	c.ordered = c.exports(c.list.Entries)
	c.takeovers = takeovers(c.ordered)
	c.freeze = c.frozenBy(v.Now)
	return c
}

// isSettling reports whether a new export takes the place of its age.
func (v *ImportView) isSettling(list model.List, e model.Export) bool {
	age := v.Now.Sub(list.Formed) // negative if the clock went back
	return age >= 0 && age < settling && !e.CreatedAt.Before(list.Formed.Add(-settling))
}

// entry is what becomes of an entry in its place; false if it is dropped.
func (v *ImportView) entry(e model.Entry, s source) (model.Entry, bool) {
	switch s.state {
	case model.SourceRemoved, model.SourceConfirmed:
		return e, false
	case model.SourceEnded, model.SourceSuspended, model.SourceRefused, model.SourceMissing:
		isSame := e.Absent == s.state || e.Absent.IsOut() && s.state.IsOut() // it is out since the first of the reasons
		if !isSame || e.Since.After(v.Now) {                                 // the clock was wrong
			e.Since = v.Now.UTC().Truncate(time.Second)
		}
		e.Absent = s.state
		return e, s.state != model.SourceEnded || v.Now.Sub(e.Since) < turnover
	case model.SourcePublished:
		e.Scoped, e.Absent, e.Since = s.export.Scoped, model.SourcePublished, time.Time{}
	case model.SourceReplaced:
		e = entryFor(*s.export)
	}
	return e, true
}

func entryFor(e model.Export) model.Entry {
	return model.Entry{Cluster: e.Cluster, UID: e.UID, CreatedAt: e.CreatedAt, Scoped: e.Scoped, Absent: model.SourcePublished}
}

// replace leaves the entry of an export that another one replaced, or that is back, in its
// place if no property of the import changes by that, and makes it the last one otherwise.
// The import is the one that stands: the exports behind it may include one that waits to
// take it over, which must not win by that. It is also what it would be with the entry last.
// While an entry before it freezes the import, nothing changes.
func (v *ImportView) replace(c *composition, e model.Export, standing *model.Import) {
	if c.frozenBy(v.Now) != nil {
		return
	}
	at := indexOf(c.list.Entries, e.Cluster)
	last := append(slices.Delete(slices.Clone(c.list.Entries), at, at+1), c.list.Entries[at])
	inPlace := c.exports(c.list.Entries)
	if resolved, _ := merge.ResolveInOrder(inPlace); standing != nil && len(merge.Compare(standingLike(standing, resolved), resolved)) == 0 {
		return
	}
	if len(merge.Changes(c.exports(last), inPlace)) > 0 {
		c.list.Entries = last
	}
}

// standingLike is an import as it stands with the properties of resolved that no object
// says, and without the ports that nothing of resolved has: those of what is not read.
func standingLike(standing, resolved *model.Import) *model.Import {
	out := *standing
	out.PreferLocal, out.Selector, out.Targets = resolved.PreferLocal, resolved.Selector, resolved.Targets
	lost := func(f corev1.IPFamily) bool { return !slices.Contains(resolved.IPFamilies, f) }
	if len(resolved.IPFamilies) == 0 || !slices.ContainsFunc(standing.IPFamilies, lost) {
		out.IPFamilies = resolved.IPFamilies // the Service has those that this cluster has
	}
	if standing.Labels == nil { // of a Service, which does not have them
		out.Labels, out.Annotations = resolved.Labels, resolved.Annotations
	}
	out.Ports = slices.DeleteFunc(slices.Clone(standing.Ports), func(p mcsv1beta1.ServicePort) bool {
		return !slices.ContainsFunc(resolved.Ports, func(r mcsv1beta1.ServicePort) bool {
			return r.Name == p.Name || r.Port == p.Port && r.Protocol == p.Protocol
		})
	})
	return &out
}

// join adds an entry: at the place of its age, or as the last one.
func (c *composition) join(e model.Export, byAge bool) {
	at := len(c.list.Entries)
	if byAge {
		if younger := slices.IndexFunc(c.list.Entries, func(other model.Entry) bool { return isOlder(e, other) }); younger >= 0 {
			at = younger
		}
	}
	c.list.Entries = slices.Insert(c.list.Entries, at, entryFor(e))
}

func isOlder(e model.Export, than model.Entry) bool {
	return cmp.Or(cmp.Compare(e.CreatedAt.Unix(), than.CreatedAt.Unix()), compareIDs(e.Cluster, than.Cluster)) < 0
}

// confirm makes the export the first one that the annotation of the ServiceImport names.
func (v *ImportView) confirm(c *composition) {
	imported := v.Current.Import
	if imported == nil || !model.IsManaged(imported) || imported.Annotations[model.AnnotationConfirmTakeover] == "" {
		return
	}
	text := imported.Annotations[model.AnnotationConfirmTakeover]
	at := slices.IndexFunc(c.list.Entries, func(e model.Entry) bool { return e.UID != "" && e.Export().ID() == text })
	if at < 0 {
		c.problems = append(c.problems, model.Problem{Reason: model.ReasonInvalidAnnotation, Message: fmt.Sprintf(
			"ServiceImport %s, annotation %s is %s: the import has no export of that cluster and UID, so the annotation has no effect; "+
				"use kubectl comity confirm takeover, or remove it", v.Local.Key, model.AnnotationConfirmTakeover, model.Quote(text))})
		return
	}
	first := c.list.Entries[at]
	if !c.sources[first.Cluster].state.IsRead() { // it is first already, or will be once it is read
		return
	}
	c.list.Entries = slices.Insert(slices.Delete(c.list.Entries, at, at+1), 0, first)
}

// exports are those of entries that are used.
func (c *composition) exports(entries []model.Entry) []model.Export {
	var out []model.Export
	for _, e := range entries {
		if s := c.sources[e.Cluster]; s.state.IsRead() {
			out = append(out, merge.WithDefaults(*s.export))
		}
	}
	return out
}

// takeovers are the changes of the import that wait for a confirmation: KEP-1645 says
// oldest first, and that lets any member, by a creation time in the past, decide the
// properties of an import that others serve.
func takeovers(ordered []model.Export) []model.Takeover {
	var out []model.Takeover
	byAge := merge.OldestFirst(ordered)
	for _, e := range byAge {
		own := moved(ordered, byAge, e)
		at := position(own, e.Cluster)
		if at == position(ordered, e.Cluster) { // which is so of nearly all: nothing is to be resolved
			continue
		}
		if changes := merge.Changes(ordered, own); len(changes) > 0 {
			held := model.Takeover{Decider: sourceExport(ordered[at]), By: sourceExport(e)}
			held.Fields, held.Changes = describe(changes)
			out = append(out, held)
		}
	}
	return out
}

// position is that of the export of cluster in list.
func position(list []model.Export, cluster model.ClusterID) int {
	return slices.IndexFunc(list, func(e model.Export) bool { return e.Cluster == cluster })
}

func indexOf(list []model.Entry, cluster model.ClusterID) int {
	return slices.IndexFunc(list, func(e model.Entry) bool { return e.Cluster == cluster })
}

// moved is ordered with e before the first export that is younger, if e is behind it.
func moved(ordered, byAge []model.Export, e model.Export) []model.Export {
	at := slices.IndexFunc(ordered, func(other model.Export) bool { return position(byAge, other.Cluster) > position(byAge, e.Cluster) })
	from := position(ordered, e.Cluster)
	if at < 0 || at > from {
		return ordered
	}
	return slices.Insert(slices.Delete(slices.Clone(ordered), from, from+1), at, e)
}

// frozenBy is why the properties of the import do not change; nil if they may. It is the
// entry that decides, if it is kept, or if it is out for less than a minute; one that is
// out for longer is passed over.
func (c *composition) frozenBy(now time.Time) *model.Freeze {
	if !c.isServed() {
		return nil
	}
	for _, e := range c.list.Entries {
		s, end := c.sources[e.Cluster], e.Since.Add(turnover)
		switch {
		case s.state.IsRead():
			return nil
		case s.state.IsKept():
			return &model.Freeze{By: e.Export(), State: s.state, Why: s.why, Since: sinceOf(e, s)}
		case now.Before(end):
			return &model.Freeze{By: e.Export(), State: s.state, Why: s.why, Since: e.Since, Until: end}
		}
	}
	return nil
}

// differs reports whether an import as it stands is not what its exports are resolved to;
// true if nothing stands.
func differs(standing, resolved *model.Import) bool {
	if resolved == nil || standing == nil {
		return resolved != nil
	}
	return (len(merge.Compare(standingLike(standing, resolved), resolved)) > 0 ||
		slices.ContainsFunc(resolved.Ports, func(p mcsv1beta1.ServicePort) bool {
			return !slices.ContainsFunc(standing.Ports, func(s mcsv1beta1.ServicePort) bool { return s.Name == p.Name })
		}))
}

// ends is when an entry is out for a minute next; zero if none will be.
func (c *composition) ends(now time.Time) time.Time {
	var first time.Time
	for _, e := range c.list.Entries {
		if end := e.Since.Add(turnover); e.Absent.IsOut() && now.Before(end) && (first.IsZero() || end.Before(first)) {
			first = end
		}
	}
	return first
}

// decider is the export that decides what is served; zero if nothing is.
func (c *composition) decider(now time.Time) model.SourceExport {
	for _, e := range c.list.Entries {
		if s := c.sources[e.Cluster]; c.isServed() && (s.state.IsServed() || now.Before(e.Since.Add(turnover))) {
			return e.Export()
		}
	}
	return model.SourceExport{}
}

// sinceOf is since when an entry is kept; zero if that is not known.
func sinceOf(e model.Entry, s source) time.Time {
	if s.state == model.SourceMissing {
		return e.Since
	}
	return s.liveness.Since
}

// keepsAddress reports whether the derived Service stays though nothing is served: the
// list has an entry that may come back.
func (c *composition) keepsAddress() bool {
	return slices.ContainsFunc(c.list.Entries, func(e model.Entry) bool { return e.Absent == model.SourceSuspended || e.Absent == model.SourceRefused })
}

// isServed reports whether there is an import.
func (c *composition) isServed() bool {
	return slices.ContainsFunc(c.list.Entries, func(e model.Entry) bool { return c.sources[e.Cluster].state.IsServed() })
}

// keeps are the clusters of which what exists stays as it is, sorted: the sources that are
// kept, and those of unsynced that are no source.
func (c *composition) keeps(unsynced []model.ClusterID) []model.ClusterID {
	out := slices.DeleteFunc(slices.Clone(unsynced), func(id model.ClusterID) bool { return c.sources[id].state != 0 })
	for id, s := range c.sources {
		if s.state.IsKept() {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// found are the sources as they are reported, in the order of the list.
func (c *composition) found() []model.Source {
	var out []model.Source
	for _, e := range c.list.Entries {
		s := c.sources[e.Cluster]
		out = append(out, model.Source{Cluster: e.Cluster, UID: e.UID, State: s.state, Since: e.Since, Why: s.why, Liveness: s.liveness, Starting: s.starting})
	}
	return out
}

func sourceExport(e model.Export) model.SourceExport {
	return model.SourceExport{Cluster: e.Cluster, UID: e.UID, CreatedAt: e.CreatedAt, Scoped: e.Scoped}
}

func compareIDs(a, b model.ClusterID) int { return cmp.Compare(a, b) }

// maxChanges bounds how much of the changes is shown, in bytes: the values are text
// of a member.
const maxChanges = 300

func describe(changes []merge.Change) (fields []string, text string) {
	parts := make([]string, len(changes))
	for i, c := range changes {
		parts[i] = model.OneLine(c.String(), 120)
		if !slices.Contains(fields, c.Field) {
			fields = append(fields, c.Field)
		}
	}
	return fields, model.Bound(strings.Join(parts, "; "), maxChanges)
}
