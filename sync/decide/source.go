// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// PeerView is what this cluster knows of one other cluster, for one import: of each
// member, and of each cluster that the import lists and that is no member now.
type PeerView struct {
	// Member is what is known of the member; only its ID, and Liveness, of a cluster
	// that is none.
	model.Member
	// Known is true of a member. Removed is true if its Peer says so.
	Known, Removed bool
	// Export is what it publishes; nil if nothing, or nothing valid.
	Export *model.Export
	// Withdrawals are what it states of exports of this name.
	Withdrawals []model.Withdrawal
	// NotAccepted is true if its Peer does not accept exports of the namespace.
	NotAccepted bool
	// Verdict is what the policies with stage Import answer; nil if there are none.
	Verdict *decision.Verdict
	// Namespace is the namespace there, as its NamespaceRecord has it.
	Namespace model.MemberNamespace
	// Slices are what may be imported of its endpoints, Problems what is left out.
	Slices   []*discoveryv1.EndpointSlice
	Problems []model.Problem
	// Accepted are the addresses that are accepted from it; nil if that is not known.
	Accepted *exchange.Filter
	// Probed is what probes of its endpoints found.
	Probed Probed
}

// Probed is the result of probes of the endpoints of one cluster.
type Probed int

// The zero value means that it is not known.
const (
	Answers Probed = iota + 1
	Silent
)

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
	cluster  model.ClusterID
	state    model.SourceState
	why      string        // what a reader needs to know; empty if the state says it
	export   *model.Export // what is imported; only if state.IsRead
	entry    *model.Entry  // nil if the list has none
	liveness model.Liveness
	starting bool // see model.Source
}

// sources applies the table to this cluster and to every other one, sorted by cluster.
func (v *ImportView) sources(list model.List) []source {
	var out []source
	if s, has := v.ownSource(entryOf(list, v.Self)); has {
		out = append(out, s)
	}
	for i := range v.Peers {
		p := &v.Peers[i]
		s := source{cluster: p.ID, entry: entryOf(list, p.ID), liveness: p.Liveness}
		if v.peerSource(p, &s) {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b source) int { return compareIDs(a.cluster, b.cluster) })
	return out
}

func entryOf(list model.List, id model.ClusterID) *model.Entry {
	if e, has := list.Find(id); has {
		return &e
	}
	return nil
}

// ownSource is this cluster's own export; false if it is no source.
func (v *ImportView) ownSource(entry *model.Entry) (source, bool) {
	s := source{cluster: v.Self, entry: entry, liveness: model.Liveness{State: model.Connected}, state: v.Own.State, why: v.Own.Why}
	if s.state == model.SourceNotRead && entry != nil && entry.Absent.IsOut() { // as in peerSource
		s.state, s.why = entry.Absent, ""
	}
	if s.state != model.SourcePublished {
		return s, entry != nil
	}
	export, err := modelExport(v.Self, v.MaintainSelectors, v.Local)
	if err != nil { // there is nothing that can be exported
		s.state, s.why = model.SourceSuspended, err.Error()
		return s, entry != nil
	}
	s.publish(&export, v.Now)
	return s, true
}

// peerSource finds the row of one other cluster; false if it is no source: it has no entry,
// and publishes nothing that is imported.
func (v *ImportView) peerSource(p *PeerView, s *source) bool {
	refused, why := v.refuses(p)
	switch {
	case p.Removed:
		s.state = model.SourceRemoved
	case s.entry == nil && (p.Export == nil || refused != decision.Allowed):
		return false
	case s.entry != nil && p.Export == nil && p.withdraws(*s.entry) != 0:
		s.state = p.withdraws(*s.entry)
	case refused == decision.Denied:
		s.state, s.why = model.SourceRefused, why
	case p.Export != nil && refused == decision.Allowed:
		s.publish(p.Export, v.Now)
	case s.entry.Absent.IsOut() && p.Synced && p.Export == nil && !s.entry.Since.After(p.ConfirmMissingBefore):
		s.state = model.SourceConfirmed // nothing states any more why it is out
	case s.entry.Absent.IsOut(): // nothing of it is kept, so there is nothing to decide
		s.state = s.entry.Absent
	case !p.Synced:
		s.state, s.why, s.starting = model.SourceNotRead, p.notReadBecause(), p.isStarting()
	case p.Export != nil:
		s.state, s.why = model.SourceNotRead, why
	case s.entry.Absent == model.SourceMissing && !s.entry.Since.After(p.ConfirmMissingBefore):
		s.state = model.SourceConfirmed
	default:
		s.state = model.SourceMissing
	}
	return true
}

// publish is the row of an export that is used: which of the last three.
func (s *source) publish(export *model.Export, now time.Time) {
	s.export = export
	switch e := s.entry; {
	case e == nil:
		s.state = model.SourceJoined
	case e.UID != export.UID, e.Absent.IsOut() && now.Sub(e.Since) >= turnover:
		s.state = model.SourceReplaced
	default:
		s.state = model.SourcePublished
	}
	s.why = ""
}

// withdraws is SourceEnded or SourceSuspended if p states the withdrawal of the export of
// an entry, or of a later one, by which it was replaced; zero if it does not. The
// withdrawal of an earlier export is what a restored store brings back. One that narrowed
// the scope is none for who found the export where only this cluster reads.
func (p *PeerView) withdraws(e model.Entry) model.SourceState {
	if !p.Synced {
		return 0
	}
	var found model.SourceState
	for _, w := range p.Withdrawals {
		switch {
		case w.UID != e.UID && e.UID != "" && !w.CreatedAt.After(e.CreatedAt), w.Narrowed && e.Scoped && w.UID == e.UID:
		case w.Suspended, w.Narrowed:
			return model.SourceSuspended
		default:
			found = model.SourceEnded
		}
	}
	return found
}

// notReadBecause says why p is not read.
func (p *PeerView) notReadBecause() string {
	switch {
	case !p.Known:
		return fmt.Sprintf("there is no Peer %s", p.ID)
	case p.Liveness.Message != "":
		return p.Liveness.Message
	}
	return fmt.Sprintf("cluster %s was not read since Comity started here", p.ID)
}

// isStarting reports whether p is being connected to for the first time since start, as far
// as is known.
func (p *PeerView) isStarting() bool {
	return p.Known && p.Liveness.State == model.Connected && p.Liveness.Reason == "" && p.Liveness.Message == ""
}

// refuses says whether the export of p may be imported, and why not. Denied also if the
// identity of the namespace is another; NotEvaluated if that is not known, or not what the
// policies say.
func (v *ImportView) refuses(p *PeerView) (decision.Outcome, string) {
	if p.NotAccepted {
		return decision.Denied, fmt.Sprintf("Peer %s, spec.acceptedNamespaces: it does not list Namespace %s; to import from there, add it", p.ID, v.Local.Key.Namespace)
	}
	outcome, why := v.rule(p)
	if outcome == decision.Denied || p.Export == nil {
		return outcome, why
	}
	if identity, text := v.sameness(p); identity != decision.Allowed {
		return identity, text
	}
	return outcome, why
}

// OwnEntry is this cluster's own entry in the list of an import.
func OwnEntry(v *ImportView) (model.Entry, bool) { return v.stored().Find(v.Self) }

// IsListedAsOwn reports whether the list of an import has this cluster's own export under the
// id of now: an import shows then that this cluster has that id.
func IsListedAsOwn(v *ImportView) bool {
	e, listed := plan.StoredList(v.Current, v.Local.Key).Find(v.Self)
	return listed && v.Local.Export != nil && e.UID == v.Local.Export.UID
}
