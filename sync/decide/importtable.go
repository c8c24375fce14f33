// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"cmp"
	"fmt"
	"time"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/exchange"
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
		export, err := exchange.LocalExport(i.Self, i.Local.Export, i.Local.Service, i.MaintainSelectors)
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
	s, ruled := source{Source: model.Source{Liveness: p.Liveness}}, i.rulings[p.ID]
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
