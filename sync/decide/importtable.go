// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/merge"
	"github.com/comity-mcs/comity/sync/model"
)

// The import table says what becomes of one source of an import; the first row that matches
// it applies. Conditions and metrics use its states, and make generate copies it to
// docs/imports.md.
//
//	| state | the source | its entry in the list | its EndpointSlices |
//	| Removed | an administrator removed the member: `spec.removed` of its Peer is true | dropped | removed |
//	| Ended | a record states that this export, or one created later, was withdrawn, and its ServiceExport is gone | dropped after a minute | removed |
//	| Suspended | a record states that it was withdrawn, and its ServiceExport exists | keeps its place | removed |
//	| Refused | the accepted namespaces of the Peer, an import policy, the annotation `comity.dev/import-from` or the identity of the namespace refuse it here | keeps its place | removed |
//	| NotRead | its cluster was not read; or it cannot be decided: a policy was not evaluated, the identity of the namespace or of this cluster is not known | kept | kept |
//	| MissingConfirmed | missing, and `spec.confirmMissingBefore` of its Peer is not before the time since when it is missing | dropped | removed |
//	| Missing | its cluster was read completely, and states nothing of it | kept | kept |
//	| Published | published, and the UID is that of the entry | kept | follow |
//	| Replaced | published with another UID, or again after it was ended, suspended or refused for more than a minute | keeps its place if no property of the import changes, else last | follow |
//	| Joined | published, and the list has no entry of its cluster | last; when the list forms, by age | follow |

// OwnSource is this cluster's own export as a source of the import.
type OwnSource struct {
	// State is SourcePublished, SourceEnded, SourceSuspended or SourceNotRead.
	State model.SourceState
	// Why explains SourceSuspended and SourceNotRead.
	Why string
	// Until is when the export will be withdrawn, which policies deny; zero if it is not.
	Until time.Time
}

// turnover is for how long the place of an export that is gone freezes the properties of
// the import, and for how long its entry stays: who deletes and creates a ServiceExport or
// a Service changes nothing but endpoints.
const turnover = time.Minute

// source is one source with the row that applies to it.
type source struct {
	model.Source
	export *model.Export // what is imported; only if State.IsRead
}

// ownSource is this cluster's own export; the zero value if it is no source.
func (i *importing) ownSource() source {
	entry, listed := i.before.Find(i.Self)
	var s source
	s.Liveness.State, s.State, s.Why = model.Connected, i.Own.State, i.Own.Why
	if s.State == model.SourceNotRead && entry.Absent.IsOut() { // as in peerSource
		s.State, s.Why = entry.Absent, ""
	}
	if s.State == model.SourcePublished {
		export, err := modelExport(i.Self, i.MaintainSelectors, i.Local)
		if err == nil {
			s.publish(&export, entry, listed, i.Now)
			return s
		}
		s.State, s.Why = model.SourceSuspended, err.Error() // there is nothing that can be exported
	}
	if !listed {
		return source{}
	}
	return s
}

// peerSource finds the row of one other cluster; the zero value if it is no source: it has no
// entry, and publishes nothing that is imported.
func (i *importing) peerSource(p *exchange.Published) source {
	entry, listed := i.before.Find(p.ID)
	s, ruled := source{Source: model.Source{Liveness: p.Liveness}}, i.ruling(p)
	isAllowed, stated := p.Export != nil && ruled.outcome == decision.Allowed, withdraws(p, entry)
	switch {
	case p.Removed:
		s.State = model.SourceRemoved
	case !listed && !isAllowed:
		return source{}
	case listed && stated != "":
		s.State = stated
	case ruled.denies():
		s.State, s.Why = model.SourceRefused, ruled.why
	case isAllowed:
		s.publish(p.Export, entry, listed, i.Now)
	case entry.Absent.IsOut() && p.Synced && p.Export == nil && !entry.Since.After(p.ConfirmMissingBefore):
		s.State = model.SourceConfirmed // nothing states any more why it is out
	case entry.Absent.IsOut(): // nothing of it is kept, so there is nothing to decide
		s.State = entry.Absent
	case !p.Synced:
		s.State, s.Why = model.SourceNotRead, cmp.Or(p.Liveness.Message, fmt.Sprintf("cluster %s was not read since Comity started here", p.ID))
		if !p.Known {
			s.Why = fmt.Sprintf("there is no Peer %s", p.ID)
		}
		s.Starting = isStarting(*p)
	case p.Export != nil:
		s.State, s.Why = model.SourceNotRead, ruled.why
	case entry.Absent == model.SourceMissing && !entry.Since.After(p.ConfirmMissingBefore):
		s.State = model.SourceConfirmed
	default:
		s.State = model.SourceMissing
	}
	return s
}

// publish is the row of an export that is used: which of the last three, by the entry e if it
// is listed.
func (s *source) publish(export *model.Export, e model.Entry, listed bool, now time.Time) {
	s.export = export
	switch {
	case !listed:
		s.State = model.SourceJoined
	case e.UID != export.UID, e.Absent.IsOut() && now.Sub(e.Since) >= turnover:
		s.State = model.SourceReplaced
	default:
		s.State = model.SourcePublished
	}
	s.Why = ""
}

// withdraws is SourceEnded or SourceSuspended if p publishes nothing, and states the
// withdrawal of the export of an entry, or of a later one, by which it was replaced; empty if
// it does not. Of two statements, of which p makes one to this cluster alone, that of the
// earlier row counts: that the ServiceExport is gone. The withdrawal of an earlier export is
// what a restored store brings back. One that narrowed the scope is none for who found the
// export where only this cluster reads.
func withdraws(p *exchange.Published, e model.Entry) (found model.SourceState) {
	if p.Export != nil || !p.Synced {
		return ""
	}
	for _, w := range p.Withdrawals {
		switch {
		case w.UID != e.UID && e.UID != "" && !w.CreatedAt.After(e.CreatedAt), w.Narrowed && e.Scoped && w.UID == e.UID:
		case !w.Suspended && !w.Narrowed:
			return model.SourceEnded
		default:
			found = model.SourceSuspended
		}
	}
	return found
}

// OwnEntry is this cluster's own entry in the list of an import.
func OwnEntry(v *ImportView) (model.Entry, bool) { return v.ownListed().Find(v.Self) }

// IsListedAsOwn reports whether the list of an import has this cluster's own export under the
// id of now: an import shows then that this cluster has that id.
func IsListedAsOwn(v *ImportView) bool {
	e, listed := v.List.Find(v.Self)
	return listed && v.Local.Export != nil && e.UID == v.Local.Export.UID
}

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
	f := &model.Freeze{By: e.SourceExport, State: s.State, Why: s.Why, Since: e.Since}
	switch {
	case s.State == model.SourceNotRead:
		f.Since = s.Liveness.Since
	case s.State.IsOut():
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

// listed are the sources as they are reported, in the order of the list.
func (i *importing) listed() []model.Source {
	var out []model.Source
	for _, e := range i.list.Entries {
		s := i.sources[e.Cluster].Source
		s.Cluster, s.UID, s.Since = e.Cluster, e.UID, e.Since
		out = append(out, s)
	}
	return out
}

// maxChanges bounds how much of the changes is shown, in bytes: the values are text
// of a member.
const maxChanges = 300

// takeovers are the changes of the import that wait for a confirmation: KEP-1645 says
// oldest first, and that lets any member, by a creation time in the past, decide the
// properties of an import that others serve.
func takeovers(ordered []model.Export) []model.Takeover {
	var out []model.Takeover
	for _, e := range merge.OldestFirst(ordered) {
		from := slices.IndexFunc(ordered, func(other model.Export) bool { return other.Cluster == e.Cluster })
		at := slices.IndexFunc(ordered[:from], func(other model.Export) bool { return e.CompareAge(other.SourceExport) < 0 })
		if at < 0 { // which is so of nearly all: nothing is to be resolved
			continue
		}
		byAge := slices.Insert(slices.Delete(slices.Clone(ordered), from, from+1), at, e)
		held := model.Takeover{Decider: ordered[at].SourceExport, By: e.SourceExport}
		var changes []string
		for _, c := range merge.Changes(merge.Resolve(ordered), merge.Resolve(byAge)) {
			changes = append(changes, model.OneLine(c.String(), 120))
			if !slices.Contains(held.Fields, c.Field) {
				held.Fields = append(held.Fields, c.Field)
			}
		}
		if held.Changes = model.Bound(strings.Join(changes, "; "), maxChanges); len(changes) > 0 {
			out = append(out, held)
		}
	}
	return out
}
