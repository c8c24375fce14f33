// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

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
	// ImportDisabled leaves importing to another implementation; MaintainSelectors
	// and Takeover are those of plan.ImportInput.
	ImportDisabled, MaintainSelectors, Takeover bool
	// IdentityLabels are the namespace labels that must be the same on both sides; none
	// compares nothing.
	IdentityLabels []string
	// Peers are the other clusters: the members (see ReadTwice), the clusters that were
	// removed, and those that Listed adds.
	Peers []PeerView
	// Current is what exists of the import, whoever made it. It has the list.
	Current plan.Current
	// FormsAt is from when on a list forms without the members that were not read.
	FormsAt time.Time
	Now     time.Time
}

// Contested is a derived object that something else keeps changing back.
type Contested struct {
	Kind, Name string
	// By is the field manager that changed it last; empty if not known.
	By string
}

// ImportFinding is what the status controller and the reports say of an import.
type ImportFinding struct {
	// Exported is true if there is a local ServiceExport too.
	Exported bool
	// Exists is true if the import exists here, possibly only because a cluster
	// that contributed was not read yet.
	Exists bool
	// Resolved is what the exports that are used are resolved to, Decider the export that
	// decides what is served. Conflicts are those among the exports that are used.
	Resolved  *model.Import
	Decider   model.SourceExport
	Conflicts []model.Conflict
	Problems  []model.Problem
	// The others are those of model.Observation.
	Unsynced  []model.ClusterID
	Sources   []model.Source
	Freeze    *model.Freeze
	Takeovers []model.Takeover
}

// IsEmpty reports whether there is nothing to report of the key.
func (f ImportFinding) IsEmpty() bool {
	return !f.Exported && !f.Exists && f.Resolved == nil && len(f.Problems) == 0
}

// ImportDecision is what to import.
type ImportDecision struct {
	// Plan is what package plan needs; only if Write is true.
	Plan plan.ImportInput
	// Write is false where nothing may be written: the namespace is missing, going or
	// reserved, another implementation imports, or no list may form yet.
	Write bool
	// HasNamespace is false if what existed here went with its namespace.
	HasNamespace bool
	Finding      ImportFinding
	// Probe are the endpoints to probe: of lost clusters, of missing exports and of
	// lost slices.
	Probe map[model.ClusterID][]netip.AddrPort
	// Joined are exports that the import did not have before, once it is written.
	Joined []model.SourceExport
	// Again is after how long the import is to be decided again; zero if an event will say
	// so.
	Again time.Duration
}

// ReadTwice are the members as two reads found them, one before and one after
// their exports were read. One that either read found unsynced may have seemed
// to export nothing, so it counts as unsynced.
func ReadTwice(before, after []model.Member) []model.Member {
	out := slices.Clone(after)
	for i, m := range out {
		at := slices.IndexFunc(before, func(other model.Member) bool { return other.ID == m.ID })
		out[i].Synced = m.Synced && at >= 0 && before[at].Synced
	}
	return out
}

// Import decides what one import should be: it applies the table to the list that is
// stored, and to what was read (see ImportTable).
func Import(v ImportView) ImportDecision {
	list := v.stored()
	isForming := !list.Exists()
	if isForming {
		list = v.forming()
	} else {
		list.Entries = append(list.Entries, v.unlisted(list)...)
	}
	found := ImportFinding{Exported: v.Local.Export != nil, Unsynced: v.unsynced()}
	d := ImportDecision{HasNamespace: true, Finding: found}
	if isForming && !v.ImportDisabled && !v.mayForm() {
		d.HasNamespace = v.namespaceState() == NamespaceReady
		d.Again = v.FormsAt.Sub(v.Now)
		return d
	}
	c := v.compose(list, isForming)
	in := plan.ImportInput{
		Key: v.Local.Key, Self: v.Self, Sources: v.slices(&c), LocalCluster: v.LocalCluster,
		MaintainSelectors: v.MaintainSelectors, Takeover: v.Takeover,
		List: c.list, Unsynced: c.keeps(found.Unsynced), KeepAddress: c.keepsAddress(), Current: v.Current,
	}
	resolved, conflicts := merge.ResolveInOrder(c.ordered)
	if in.Desired = resolved; c.freeze != nil {
		in.Desired, in.Frozen = plan.Standing(v.Current, v.Local.Key, resolved), true
		c.freeze.Waits = differs(in.Desired, resolved)
	}
	found.Resolved, found.Conflicts, found.Freeze, found.Takeovers = resolved, conflicts, c.freeze, c.takeovers
	found.Problems = slices.Concat(v.sliceProblems(&c), v.ruleProblems(), v.ownProblems(), c.problems)
	found.Sources, found.Decider = c.found(), c.decider(v.Now)
	d = v.complete(in, found)
	if d.Write {
		d.Joined = c.joined
	}
	d.Again = v.again(&c)
	return d
}

// unsynced are the members that were not read, and this cluster while its own export
// cannot be decided, sorted. What exists of an id that this cluster had is its own.
func (v *ImportView) unsynced() []model.ClusterID {
	var out []model.ClusterID
	list := plan.StoredList(v.Current, v.Local.Key)
	for i := range v.Peers {
		p := &v.Peers[i]
		e, listed := list.Find(p.ID)
		if refused, _ := v.refuses(p); !p.Synced && !p.Removed && refused != decision.Denied && (!listed || !v.hadID(e)) {
			out = append(out, p.ID)
		}
	}
	if v.Own.State == model.SourceNotRead {
		out = append(out, v.Self)
	}
	slices.Sort(out)
	return out
}

// slices are what the exports that are used contribute.
func (v *ImportView) slices(c *composition) map[model.ClusterID][]*discoveryv1.EndpointSlice {
	out := map[model.ClusterID][]*discoveryv1.EndpointSlice{}
	for i := range v.Peers {
		if p := &v.Peers[i]; c.sources[p.ID].state.IsRead() {
			out[p.ID] = p.Slices
		}
	}
	if c.sources[v.Self].state.IsRead() {
		shared, _, _ := exchange.Ports(v.Local.Export, v.Local.Service) // modelExport has found no error
		out[v.Self] = sharedSlices(v.Local.Slices, shared)
	}
	return out
}

// sliceProblems are those of the sources of which something is imported.
func (v *ImportView) sliceProblems(c *composition) []model.Problem {
	var out []model.Problem
	for i := range v.Peers {
		if p := &v.Peers[i]; c.sources[p.ID].state.IsServed() {
			out = append(out, p.Problems...)
		}
	}
	return out
}

// ownProblems are those of the annotations of the own export.
func (v *ImportView) ownProblems() []model.Problem {
	if v.Own.State != model.SourcePublished || v.Local.Export == nil || v.Local.Service == nil {
		return nil
	}
	var out []model.Problem
	if _, err := exchange.Prefer(v.Local.Export); err != nil {
		out = append(out, model.Problem{Reason: model.ReasonInvalidAnnotation, Message: err.Error()})
	}
	if _, missing, _ := exchange.Ports(v.Local.Export, v.Local.Service); missing != "" {
		out = append(out, model.Problem{Reason: model.ReasonInvalidAnnotation, Message: missing})
	}
	return out
}

// ownRetry is how soon an import is decided again while the own export cannot be: the end
// of that need not be an event.
const ownRetry = 10 * time.Second

// again is how long to wait until a time of the table ends, the grace period of the own
// export does, or policies are to be evaluated again; zero if there is nothing to wait for.
func (v *ImportView) again(c *composition) (wait time.Duration) {
	ends := []time.Time{c.ends(v.Now), v.Own.Until}
	if v.Own.State == model.SourceNotRead {
		ends = append(ends, v.Now.Add(ownRetry))
	}
	if slices.ContainsFunc(v.Peers, func(p PeerView) bool { return p.Verdict != nil && p.Verdict.Outcome == decision.NotEvaluated }) {
		ends = append(ends, v.Now.Add(policyRetry))
	}
	for _, end := range ends {
		if in := end.Sub(v.Now); in > 0 && (wait == 0 || in < wait) {
			wait = in
		}
	}
	return wait
}

func (v *ImportView) namespaceState() NamespaceState {
	return Namespace(v.Local.Key.Namespace, v.Local.Namespace, v.ComityNamespace)
}

// complete adds what depends on what exists here.
func (v *ImportView) complete(in plan.ImportInput, found ImportFinding) ImportDecision {
	d := ImportDecision{Finding: found, HasNamespace: true}
	switch {
	case v.namespaceState() != NamespaceReady:
		d.HasNamespace = false
		d.Finding.Resolved, d.Finding.Sources, d.Finding.Freeze, d.Finding.Takeovers = nil, nil, nil, nil
		return d
	case v.ImportDisabled:
		return d
	}
	var problems []model.Problem
	in.OnLost, problems = onLost(in.Key, v.Current, v.Local.Namespace)
	in.LostSlices = v.lostSlices(in)
	d.Finding.Problems = slices.Concat(d.Finding.Problems, problems, lostSliceProblems(in))
	whole := wholeTargets(in, found.Sources)
	d.Probe = withLostSlices(whole, in)
	in.Accepted = map[model.ClusterID]exchange.Filter{}
	for i := range v.Peers {
		p := &v.Peers[i]
		if p.Accepted != nil {
			in.Accepted[p.ID] = *p.Accepted
		}
		_, wholly := whole[p.ID]
		_, partly := d.Probe[p.ID]
		switch {
		case p.Probed == Answers:
			in.Answers = append(in.Answers, p.ID)
		case wholly && slices.ContainsFunc(found.Sources, func(s model.Source) bool { return s.Cluster == p.ID && isPresumedDown(s, v.Current) }):
			in.Lost = append(in.Lost, p.ID)
		case p.Probed == Silent && wholly:
			in.Lost = append(in.Lost, p.ID)
		case p.Probed == Silent && partly:
			in.LostSlicesDown = append(in.LostSlicesDown, p.ID)
		}
	}
	d.Plan, d.Write = in, true
	return d
}

// sharedSlices are the slices that this cluster contributes to its own import.
func sharedSlices(in []*discoveryv1.EndpointSlice, shared model.PortSelection) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, s := range in {
		if slice, ok := exchange.ShareSlice(s, shared); ok {
			out = append(out, slice)
		}
	}
	return out
}

func contested(key types.NamespacedName, c Contested) model.Problem {
	who := "something"
	if c.By != "" {
		who = fmt.Sprintf("field manager %q", c.By)
	}
	return model.Problem{Reason: model.ReasonContested, Message: fmt.Sprintf(
		"%s %s/%s is repeatedly changed by %s, so Comity corrects it less and less often, but at least every 5 minutes; let only Comity write to it",
		c.Kind, key.Namespace, c.Name, who)}
}

// AfterPlan is the finding once the import was planned, and applied as far as the
// API server accepted it: refused are the problems with what it did not accept;
// others are the derived objects that something else keeps changing.
func (f ImportFinding) AfterPlan(key types.NamespacedName, planned plan.ImportPlan, refused []model.Problem, others []Contested) ImportFinding {
	problems := slices.Concat(planned.Problems, refused, f.Problems)
	for _, c := range others {
		problems = append(problems, contested(key, c))
	}
	f.Problems = problems
	f.Exists = planned.DerivedName != ""
	f.Sources = slices.Clone(f.Sources)
	for n := range f.Sources {
		f.Sources[n].Down = slices.Contains(planned.Withdrawn, f.Sources[n].Cluster)
	}
	return f
}

// Obstacle is the object of somebody else that a problem of this reason is
// about; nil if it is about none.
func Obstacle(reason string, current plan.Current) plan.Object {
	switch reason {
	case model.ReasonForeignImport:
		if current.Import != nil {
			return current.Import
		}
	case model.ReasonNameTaken:
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
