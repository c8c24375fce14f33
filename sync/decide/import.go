// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"net/netip"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/merge"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// ImportView is what this cluster knows of one import.
type ImportView struct {
	// Local is this cluster's own export of the same namespace and name, Own its state
	// as a source.
	Local LocalExport
	Own   OwnSource
	Self  model.ClusterID
	// ComityNamespace is Comity's own; nothing is imported into it.
	ComityNamespace string
	LocalCluster    model.LocalCluster
	// ClusterLabels are the labels that the administrator of this cluster gives it.
	ClusterLabels map[string]string
	// ImportDisabled leaves importing to another implementation; MaintainSelectors
	// and Takeover are those of plan.ImportInput.
	ImportDisabled, MaintainSelectors, Takeover bool
	// IdentityLabels are the namespace labels that must be the same on both sides; none
	// compares nothing.
	IdentityLabels []string
	// Peers are what is known of the other clusters: of the members, of the clusters that were
	// removed, and of those that ReadList adds.
	Peers []exchange.Published
	// Answers is what the probes found for this import alone (see ImportDecision.Probe):
	// whether an endpoint of a cluster answers; nothing of a cluster of which that is not known.
	Answers map[model.ClusterID]bool
	// Current is what exists of the import, whoever made it. List is the one that is stored
	// there; see ReadList.
	Current plan.Current
	List    model.List
	// FormsAt is from when on a list forms without the members that were not read.
	FormsAt time.Time
	Now     time.Time
}

// ImportFinding is what the status controller and the reports say of an import.
type ImportFinding struct {
	// Exported is true if there is a local ServiceExport too.
	Exported bool
	// Exists is true if the import exists here, possibly only because a cluster
	// that contributed was not read yet.
	Exists bool
	// Of the Observation, what is about the import.
	model.Observation
}

// IsEmpty reports whether there is nothing to report of the key.
func (f ImportFinding) IsEmpty() bool {
	return !f.Exported && !f.Exists && f.Import == nil && len(f.Problems) == 0
}

// Concerns reports whether a source or a problem is of a cluster that matches.
func (f ImportFinding) Concerns(matches func(model.ClusterID) bool) bool {
	return slices.ContainsFunc(f.Sources, func(s model.Source) bool { return matches(s.Cluster) }) ||
		slices.ContainsFunc(f.Problems, func(p model.Problem) bool { return matches(p.Cluster) })
}

// ImportDecision is what to import.
type ImportDecision struct {
	// Plan is what package plan needs; only if Write is true.
	Plan plan.ImportInput
	// Write is false where nothing may be written: the namespace is missing, going or
	// reserved, another implementation imports, or no list may form yet.
	Write   bool
	Finding ImportFinding
	// Probe are the endpoints to probe for this import alone.
	Probe map[model.ClusterID][]netip.AddrPort
	// Joined are exports that the import did not have before, once it is written.
	Joined []model.SourceExport
	// Again is after how long the import is to be decided again; zero if an event will say
	// so.
	Again time.Duration
}

// Import decides what one import should be: it applies the table to the list that is
// stored, and to what was read (see importtable.go).
func Import(v ImportView) ImportDecision {
	i := newImporting(v)
	hasNamespace := Namespace(v.Self, v.Local.Key.Namespace, v.Local.Namespace, v.ComityNamespace).Reason == ""
	starting := model.Without(i.unsynced, func(id model.ClusterID) bool { return id != i.Self && !isStarting(i.known(id)) })
	d := ImportDecision{Finding: ImportFinding{Exported: v.Local.Export != nil, Observation: model.Observation{Unsynced: i.unsynced, Starting: starting}}}
	if i.forms && !v.ImportDisabled && v.Now.Before(v.FormsAt) && slices.ContainsFunc(v.Peers, isAwaited) {
		d.Again = v.FormsAt.Sub(v.Now)
		return d
	}
	i.compose()
	resolved, conflicts := merge.ResolveInOrder(i.ordered)
	decider, _, _ := i.deciding()
	d.Finding.Decider, d.Finding.Conflicts = decider.SourceExport, conflicts
	for _, p := range i.Peers {
		if i.sources[p.ID].State.IsServed() { // something is imported of it
			d.Finding.Problems = append(d.Finding.Problems, p.Problems...)
		}
	}
	d.Finding.Problems = slices.Concat(d.Finding.Problems, i.ruleProblems(), i.ownProblems(), i.problems)
	d.Again, d.Write = i.again(), hasNamespace && !v.ImportDisabled
	if !hasNamespace {
		return d
	}
	desired, freeze := resolved, i.freeze()
	if freeze != nil {
		desired = plan.Standing(v.Current, v.Local.Key, resolved)
		freeze.Waits = differs(desired, resolved)
	}
	d.Finding.Import, d.Finding.Sources, d.Finding.Freeze, d.Finding.Takeovers = resolved, model.Map(i.list.Entries, i.reported), freeze, takeovers(resolved, i.ordered)
	if !d.Write {
		return d
	}
	d.Joined = i.joined
	// The derived Service stays though nothing is served while an entry may come back.
	mayReturn := func(e model.Entry) bool { return e.Absent == model.SourceSuspended || e.Absent == model.SourceRefused }
	d.Plan = plan.ImportInput{
		Key: v.Local.Key, Self: v.Self, Desired: desired, Frozen: freeze != nil, Sources: i.slices(), LocalCluster: v.LocalCluster,
		MaintainSelectors: v.MaintainSelectors, Takeover: v.Takeover,
		List: i.list, Unsynced: i.kept(), KeepAddress: slices.ContainsFunc(i.list.Entries, mayReturn), Current: v.Current,
	}
	i.direct(&d)
	return d
}

// slices are what the exports that are used contribute.
func (i *importing) slices() map[model.ClusterID][]*discoveryv1.EndpointSlice {
	out := map[model.ClusterID][]*discoveryv1.EndpointSlice{}
	for _, p := range i.Peers {
		if i.sources[p.ID].State.IsRead() {
			out[p.ID] = p.Slices
		}
	}
	if i.sources[i.Self].State.IsRead() {
		shared, _, _ := exchange.Ports(i.Local.Export, i.Local.Service) // exchange.LocalExport has found no error
		for _, s := range i.Local.Slices {
			if slice, ok := exchange.ShareSlice(s, shared); ok {
				out[i.Self] = append(out[i.Self], slice)
			}
		}
	}
	return out
}

// ownProblems are those of the annotations of the own export, and of what it wants to export.
func (v *ImportView) ownProblems() []model.Problem {
	if v.Own.State != model.SourcePublished || v.Local.Export == nil || v.Local.Service == nil {
		return nil
	}
	var out []model.Problem
	if _, missing, _ := exchange.Ports(v.Local.Export, v.Local.Service); missing != "" {
		out = append(out, model.Problem{Reason: model.ReasonInvalidAnnotation, Message: missing})
	}
	if reserved := model.ReservedOf(v.Local.Export); reserved != "" {
		out = append(out, model.Problem{Reason: model.ReasonReservedKey, Message: reserved})
	}
	return out
}

// ownRetry is how soon an import is decided again while the own export cannot be: the end
// of that need not be an event.
const ownRetry = 10 * time.Second

// again is how long to wait until a time of the table ends, the grace period of the own
// export does, or policies are to be evaluated again; zero if there is nothing to wait for.
func (i *importing) again() (wait time.Duration) {
	ends := []time.Time{i.Own.Until}
	for _, e := range i.list.Entries {
		if e.Absent.IsOut() {
			ends = append(ends, e.Since.Add(turnover))
		}
	}
	if i.Own.State == model.SourceNotRead {
		ends = append(ends, i.Now.Add(ownRetry))
	}
	for _, p := range i.Peers {
		for _, drain := range p.Drains {
			ends = append(ends, drain.Begins(i.Local.Key))
		}
	}
	// Policies are not evaluated for a member that exports nothing, as most do of most imports.
	isUnevaluated := func(p exchange.Published) bool {
		_, listed := i.list.Find(p.ID)
		return (p.Export != nil || listed) && p.Verdict != nil && p.Verdict.Outcome == decision.NotEvaluated
	}
	if slices.ContainsFunc(i.Peers, isUnevaluated) {
		ends = append(ends, i.Now.Add(policyRetry))
	}
	for _, end := range ends {
		wait = model.Sooner(wait, max(0, end.Sub(i.Now)))
	}
	return wait
}

// AfterPlan is the finding once the import was planned, and applied as far as the
// API server accepted it: refused are the problems with what it did not accept;
// contested those with derived objects that something else keeps changing.
func (f ImportFinding) AfterPlan(planned plan.ImportPlan, refused, contested []model.Problem) ImportFinding {
	f.Problems = slices.Concat(planned.Problems, refused, f.Problems, contested)
	f.Exists = planned.DerivedName != ""
	f.Sources = slices.Clone(f.Sources)
	for n := range f.Sources {
		s := &f.Sources[n]
		s.Unready = planned.Unready[s.Cluster]
		s.Down = s.Down && s.Unready > 0
	}
	return f
}

// Obstacle is the object of somebody else that a problem of this reason is
// about; nil if it is about none.
func Obstacle(reason string, current plan.Current) plan.Object {
	switch {
	case reason == model.ReasonForeignImport && current.Import != nil:
		return current.Import
	case reason == model.ReasonNameTaken:
		for _, s := range current.Services {
			if !model.IsManaged(s) {
				return s
			}
		}
		for _, s := range current.Slices {
			if !model.IsManaged(s) {
				return s
			}
		}
	}
	return nil
}

// ImportInputs are what policies with stage Import decide on for one import: the
// export of each member whose exports were read, and of each cluster that the import
// lists and that was not read. Of the view, Self, Local.Key, Local.Namespace, Peers and
// List count, and the annotations of Current.Import; of each of Peers, the member and what it publishes.
func ImportInputs(v ImportView) []decision.ImportInput {
	var from []decision.ImportInput
	for _, p := range v.Peers {
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
			tiers, _ := v.tiersFor(p.ID, e.Tiers, "")
			in.Export = decision.ImportedExport{Type: e.Type, Ports: e.Ports, Labels: e.Labels, Annotations: e.Annotations, Tiers: tiers.Texts()}
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
	for _, p := range v.Peers {
		known[p.ID] = true
	}
	add := func(id model.ClusterID) {
		if !known[id] {
			known[id] = true
			v.Peers = append(v.Peers, exchange.Published{Member: model.Member{ID: id, Liveness: model.Liveness{State: model.Lost}}})
		}
	}
	for _, e := range v.List.Entries {
		add(e.Cluster)
	}
	for _, s := range v.Current.Slices {
		if model.IsManaged(s) {
			add(plan.ClusterOf(s))
		}
	}
}
