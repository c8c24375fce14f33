// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/merge"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// settling is for how long after a list formed a new export takes the place of its age:
// GitOps creates one export in many clusters at once, in any order. It is also by how much
// such an export may be older than the list.
const settling = 2 * time.Minute

// importing is a decision while it is made.
type importing struct {
	ImportView
	rulings  map[model.ClusterID]ruling
	unsynced []model.ClusterID
	// before is the list that the table is applied to, list what becomes of it. forms is
	// true if there was none.
	before, list model.List
	forms        bool
	// standing is the import as it stands; nil if it does not exist.
	standing *model.Import
	sources  map[model.ClusterID]source
	// ordered are the exports that are used, in the order of the list.
	ordered  []model.Export
	problems []model.Problem
	// joined are exports that a list which had formed before did not have.
	joined []model.SourceExport
}

func newImporting(v ImportView) *importing {
	i := &importing{ImportView: v, rulings: map[model.ClusterID]ruling{}, before: v.ownListed(), standing: plan.Standing(v.Current, v.Local.Key, nil)}
	for n := range v.Peers {
		i.rulings[v.Peers[n].ID] = v.ruling(&v.Peers[n])
	}
	i.unsynced = i.findUnsynced()
	if i.forms = !i.before.Exists(); i.forms {
		i.before.Formed = v.Now.UTC().Truncate(time.Second)
	}
	// A cache may be late, or a process crashed before it removed something: what exists of a
	// cluster that is not read stays, whatever the list says.
	for _, id := range v.existing() {
		if _, has := i.before.Find(id); !has && (i.forms || slices.Contains(i.unsynced, id)) {
			i.before.Entries = append(i.before.Entries, model.Entry{SourceExport: model.SourceExport{Cluster: id}})
		}
	}
	i.sources = map[model.ClusterID]source{i.Self: i.ownSource()}
	for n := range i.Peers {
		i.sources[i.Peers[n].ID] = i.peerSource(&i.Peers[n])
	}
	return i
}

// ownListed is the stored list, with this cluster's own export under the id of now, unless
// that may be the id of another cluster.
func (v *ImportView) ownListed() model.List {
	list := model.List{Formed: v.List.Formed}
	_, has := v.List.Find(v.Self)
	for _, e := range v.List.Entries {
		if v.hadID(e) {
			if has {
				continue
			}
			e.Cluster, has = v.Self, true
		}
		list.Entries = append(list.Entries, e)
	}
	return list
}

// hadID reports whether an entry is that of this cluster's own export under an id that the
// cluster had before. UIDs are unique: only a member that publishes it under that UID claims
// it, or did when the list got it beside the own one, or with another age.
func (v *ImportView) hadID(e model.Entry) bool {
	own, _ := v.List.Find(v.Self)
	export := v.known(e.Cluster).Export
	return e.Cluster != v.Self && own.UID != e.UID && v.Own.State != model.SourceNotRead && v.Local.Export != nil && e.UID == v.Local.Export.UID &&
		e.CreatedAt.Equal(v.Local.Export.CreationTimestamp.Time) &&
		(export == nil || export.UID != e.UID)
}

// findUnsynced are the members that were not read, and this cluster while its own export
// cannot be decided, sorted. What exists of an id that this cluster had is its own.
func (i *importing) findUnsynced() []model.ClusterID {
	var out []model.ClusterID
	for _, p := range i.Peers {
		e, listed := i.List.Find(p.ID)
		if !p.Synced && !p.Removed && !i.rulings[p.ID].denies() && (!listed || !i.hadID(e)) {
			out = append(out, p.ID)
		}
	}
	if i.Own.State == model.SourceNotRead {
		out = append(out, i.Self)
	}
	slices.Sort(out)
	return out
}

// isAwaited reports whether a list is not to form before the exports of p were read.
func isAwaited(p exchange.Published) bool { return p.Known && !p.Removed && !p.Synced }

// FormsAt is from when on a list forms without the members that were not read: once each was
// waited for since this process became the leader, or since its Peer was created. A join
// creates several Peers, and which cluster is read first must not decide. A Peer that seems
// to be made later than in this moment is by another clock, and not waited for.
func FormsAt(leading, now time.Time, peers []exchange.Published, wait time.Duration) time.Time {
	out := leading.Add(wait)
	for _, p := range peers {
		if isAwaited(p) && p.Added.Sub(now) < wait && p.Added.Add(wait).After(out) {
			out = p.Added.Add(wait)
		}
	}
	return out
}

// known is what is known of another cluster; zero if nothing is.
func (v *ImportView) known(id model.ClusterID) exchange.Published {
	p, _ := model.Find(v.Peers, func(p exchange.Published) bool { return p.ID == id })
	return p
}

// existing are the clusters of which something exists here, and of which it is not known
// what they export, sorted. Nothing of an import that is to be adopted changes until those
// of its clusters were read that are members.
func (v *ImportView) existing() []model.ClusterID {
	out := sets.Set[model.ClusterID]{}
	for _, s := range v.Current.Slices {
		id := plan.ClusterOf(s)
		if !model.IsManaged(s) {
			id = plan.AdoptableFrom(s, v.Local.Key)
			if p := v.known(id); !v.Takeover || !p.Known || p.Synced {
				id = ""
			}
		}
		isKnown := id == v.Self && v.Own.State != model.SourceNotRead || id != v.Self && v.known(id).Export != nil
		if id != "" && !isKnown {
			out.Insert(id)
		}
	}
	return sets.List(out)
}

// compose applies the table to the list.
func (i *importing) compose() {
	i.list.Formed = i.before.Formed
	for _, e := range i.before.Entries {
		if next, stays := i.entry(e, i.sources[e.Cluster]); stays {
			i.list.Entries = append(i.list.Entries, next)
		}
	}
	for _, e := range slices.Clone(i.list.Entries) { // in order: what comes last makes room for those behind it
		if s := i.sources[e.Cluster]; s.State == model.SourceReplaced {
			i.replace(*s.export)
		}
	}
	var joining []model.Export // those that have no entry
	for _, s := range i.sources {
		if s.State == model.SourceJoined {
			joining = append(joining, *s.export)
		}
	}
	for _, e := range merge.OldestFirst(joining) {
		i.join(e)
		if !i.forms && i.Now.Sub(i.before.Formed) >= settling {
			i.joined = append(i.joined, e.SourceExport)
		}
	}
	i.confirm()
	i.ordered = i.exports(i.list.Entries)
}

// entry is what becomes of an entry in its place; false if it is dropped.
func (i *importing) entry(e model.Entry, s source) (model.Entry, bool) {
	switch s.State {
	case model.SourceRemoved, model.SourceConfirmed:
		return e, false
	case model.SourceEnded, model.SourceSuspended, model.SourceRefused, model.SourceMissing:
		isSame := e.Absent == s.State || e.Absent.IsOut() && s.State.IsOut() // it is out since the first of the reasons
		if !isSame || e.Since.After(i.Now) {                                 // the clock was wrong
			e.Since = i.Now.UTC().Truncate(time.Second)
		}
		e.Absent = s.State
		return e, s.State != model.SourceEnded || i.Now.Sub(e.Since) < turnover
	case model.SourcePublished, model.SourceReplaced:
		e = model.Entry{SourceExport: s.export.SourceExport} // also if it claims another age than before
	}
	return e, true
}

// replace leaves the entry of an export that another one replaced, or that is back, in its
// place if no property of the import changes by that, and makes it the last one otherwise.
// The import is the one that stands: the exports behind it may include one that waits to
// take it over, which must not win by that. It is also what it would be with the entry last.
// While an entry before it freezes the import, nothing changes.
func (i *importing) replace(e model.Export) {
	if i.freeze() != nil {
		return
	}
	at := slices.IndexFunc(i.list.Entries, func(other model.Entry) bool { return other.Cluster == e.Cluster })
	last := append(slices.Delete(slices.Clone(i.list.Entries), at, at+1), i.list.Entries[at])
	inPlace := merge.Resolve(i.exports(i.list.Entries))
	if i.standing != nil && !hasOtherProperties(i.standing, inPlace) {
		return
	}
	if len(merge.Changes(merge.Resolve(i.exports(last)), inPlace)) > 0 {
		i.list.Entries = last
	}
}

// hasOtherProperties reports whether a property of an import as it stands is not what its
// exports are resolved to.
func hasOtherProperties(standing, resolved *model.Import) bool {
	return len(merge.Changes(standingLike(standing, resolved), resolved)) > 0
}

// standingLike is an import as it stands with the properties of resolved that no object
// says, and without the ports that nothing of resolved has: those of what is not read.
func standingLike(standing, resolved *model.Import) *model.Import {
	out := *standing
	out.Tiers, out.Selector, out.Targets = resolved.Tiers, resolved.Selector, resolved.Targets
	if known := sets.New(resolved.IPFamilies...); len(known) == 0 || known.HasAll(standing.IPFamilies...) {
		out.IPFamilies = resolved.IPFamilies // the Service has those that this cluster has
	}
	if standing.Labels == nil { // of a Service, which does not have them
		out.Labels, out.Annotations = resolved.Labels, resolved.Annotations
	}
	out.Ports = model.Without(standing.Ports, func(p mcsv1beta1.ServicePort) bool {
		return !slices.ContainsFunc(resolved.Ports, func(r mcsv1beta1.ServicePort) bool {
			return r.Name == p.Name || r.Port == p.Port && r.Protocol == p.Protocol
		})
	})
	return &out
}

// join adds an entry: at the place of its age as long as the list settles, else as the last one.
func (i *importing) join(e model.Export) {
	at, age := -1, i.Now.Sub(i.before.Formed) // negative if the clock went back
	if i.forms || age >= 0 && age < settling && !e.CreatedAt.Before(i.before.Formed.Add(-settling)) {
		at = slices.IndexFunc(i.list.Entries, func(other model.Entry) bool { return e.CompareAge(other.SourceExport) < 0 })
	}
	if at < 0 {
		at = len(i.list.Entries)
	}
	i.list.Entries = slices.Insert(i.list.Entries, at, model.Entry{SourceExport: e.SourceExport})
}

// confirm makes the export the first one that the annotation of the ServiceImport names.
func (i *importing) confirm() {
	text := i.Current.ImportAnnotations()[model.AnnotationConfirmTakeover]
	if text == "" {
		return
	}
	at := slices.IndexFunc(i.list.Entries, func(e model.Entry) bool { return e.UID != "" && e.ID() == text })
	if at < 0 {
		i.problems = append(i.problems, model.Problemf(model.ReasonInvalidAnnotation, "",
			"ServiceImport %s, annotation %s is %s, and the import has no such export; use kubectl comity confirm takeover, or remove it", i.Local.Key, model.AnnotationConfirmTakeover, model.Quote(text)))
		return
	}
	first := i.list.Entries[at]
	if !i.sources[first.Cluster].State.IsRead() { // it is first already, or will be once it is read
		return
	}
	i.list.Entries = slices.Insert(slices.Delete(i.list.Entries, at, at+1), 0, first)
}

// exports are those of entries that are used.
func (i *importing) exports(entries []model.Entry) []model.Export {
	var out []model.Export
	for _, e := range entries {
		if s := i.sources[e.Cluster]; s.State.IsRead() {
			out = append(out, merge.WithDefaults(*s.export))
		}
	}
	return out
}

// isStarting reports whether, as far as is known, a peer is being connected to for the first
// time since start.
func isStarting(p exchange.Published) bool {
	return p.Known && !p.Synced && p.Liveness.State == model.Connected && p.Liveness.Reason+p.Liveness.Message == ""
}
