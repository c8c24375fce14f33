// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"net/netip"
	"slices"

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
	// Local is this cluster's own export of the same namespace and name.
	Local LocalExport
	Self  model.ClusterID
	// ComityNamespace is Comity's own; nothing is imported into it.
	ComityNamespace string
	LocalCluster    model.LocalCluster
	// ImportDisabled leaves importing to another implementation; MaintainSelectors
	// and Takeover are those of plan.ImportInput.
	ImportDisabled, MaintainSelectors, Takeover bool

	// Members are the other members, of which those that were not read before and
	// after Exports are not Synced (see ReadTwice).
	Members []model.Member
	// Exports are what the other members export under this name, Slices what may
	// be imported of their endpoints, and SliceProblems what was left out.
	Exports       []model.Export
	Slices        map[model.ClusterID][]*discoveryv1.EndpointSlice
	SliceProblems []model.Problem
	// Held are the deletions that are held.
	Held []model.Hold
	// Current is what exists of the import, whoever made it.
	Current plan.Current
	// Unanswered are the lost clusters of which no endpoint answers a probe.
	Unanswered []model.ClusterID
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
	Exists    bool
	Resolved  *model.Import
	Unsynced  []model.ClusterID
	Conflicts []model.Conflict
	Problems  []model.Problem
	Sources   []model.Source
	Held      []model.Hold
}

// IsEmpty reports whether there is nothing to report of the key.
func (f ImportFinding) IsEmpty() bool {
	return !f.Exported && !f.Exists && f.Resolved == nil && len(f.Problems) == 0
}

// ImportDecision is what to import.
type ImportDecision struct {
	// Plan is what package plan needs; only if Write is true.
	Plan plan.ImportInput
	// Write is false where nothing may be written: the namespace is missing,
	// going or reserved, or another implementation imports.
	Write bool
	// HasNamespace is false if what existed here went with its namespace.
	HasNamespace bool
	Finding      ImportFinding
	// Probe are the endpoints to probe of lost clusters.
	Probe map[model.ClusterID][]netip.AddrPort
}

// ReadTwice are the members as two reads found them, one before and one after
// their exports were read. One that either read found unsynced may have seemed
// to export nothing, so it counts as unsynced.
func ReadTwice(before, after []model.Member) []model.Member {
	out := slices.Clone(after)
	for _, m := range before {
		at := slices.IndexFunc(out, func(other model.Member) bool { return other.ID == m.ID })
		if at < 0 {
			out = append(out, m)
			continue
		}
		out[at].Synced = out[at].Synced && m.Synced
	}
	return out
}

// Import decides what one import should be. Whether this cluster's own export
// counts, policies decide; while they could not be evaluated, what exists here of
// it stays. The same holds for members that were not read, and for held deletions.
func Import(v ImportView) ImportDecision {
	local := v.Local
	in := plan.ImportInput{
		Key: local.Key, Self: v.Self, Sources: map[model.ClusterID][]*discoveryv1.EndpointSlice{},
		LocalCluster: v.LocalCluster, MaintainSelectors: v.MaintainSelectors, Takeover: v.Takeover,
	}
	found := ImportFinding{Exported: local.Export != nil, Held: v.Held, Problems: slices.Clone(v.SliceProblems)}
	liveness := map[model.ClusterID]model.Liveness{v.Self: {State: model.Connected}}
	for _, m := range v.Members {
		liveness[m.ID] = m.Liveness
		if !m.Synced {
			found.Unsynced = append(found.Unsynced, m.ID)
		}
	}
	slices.Sort(found.Unsynced)
	exports := slices.Clone(v.Exports)
	for _, e := range exports {
		in.Sources[e.Cluster] = v.Slices[e.Cluster]
	}
	switch own, outcome := ownExport(v); outcome {
	case decision.Allowed:
		if _, err := exchange.Prefer(local.Export); err != nil {
			found.Problems = append(found.Problems, model.Problem{Reason: model.ReasonInvalidAnnotation, Message: err.Error()})
		}
		exports = append(exports, own)
		in.Sources[v.Self] = withoutHostNames(local.Slices)
	case decision.NotEvaluated:
		found.Unsynced = append(found.Unsynced, v.Self)
	}
	in.Unsynced = slices.Clone(found.Unsynced)
	for _, hold := range v.Held {
		if !slices.Contains(in.Unsynced, hold.Cluster) {
			in.Unsynced = append(in.Unsynced, hold.Cluster)
		}
	}
	in.Desired, found.Conflicts = merge.Resolve(exports)
	found.Resolved = in.Desired
	return v.complete(in, found, liveness)
}

// complete adds what depends on what exists here.
func (v ImportView) complete(in plan.ImportInput, found ImportFinding, liveness map[model.ClusterID]model.Liveness) ImportDecision {
	d := ImportDecision{Finding: found, HasNamespace: true}
	switch {
	case Namespace(in.Key.Namespace, v.Local.Namespace, v.ComityNamespace) != NamespaceReady:
		d.HasNamespace = false
		d.Finding.Resolved = nil
		return d
	case v.ImportDisabled:
		d.Finding.Sources = sources(in, liveness)
		return d
	}
	in.Current = v.Current
	d.Finding.Sources = sources(in, liveness)
	var problems []model.Problem
	in.OnLost, problems = onLost(in.Key, v.Current, v.Local.Namespace)
	d.Probe = probeTargets(in, d.Finding.Sources)
	for _, id := range v.Unanswered {
		if _, lost := d.Probe[id]; lost {
			in.Lost = append(in.Lost, id)
		}
	}
	d.Finding.Problems = append(d.Finding.Problems, problems...)
	d.Plan, d.Write = in, true
	return d
}

// ownExport is this cluster's export, and whether it counts: NotEvaluated if
// policies could not be evaluated, Denied also if there is nothing to export.
func ownExport(v ImportView) (model.Export, decision.Outcome) {
	if v.Local.Export == nil {
		return model.Export{}, decision.Denied
	}
	export, err := modelExport(v.Self, v.MaintainSelectors, v.Local)
	if err != nil {
		return model.Export{}, decision.Denied
	}
	return export, v.Local.Verdict.Outcome
}

func withoutHostNames(in []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, s := range in {
		if s.AddressType != discoveryv1.AddressTypeFQDN {
			out = append(out, s)
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
		"%s %s/%s is changed again and again by %s, so it is put right ever more rarely, at least every 5 minutes; let only Comity write to it",
		c.Kind, key.Namespace, c.Name, who)}
}

// AfterPlan is the finding once the import was planned, and applied as far as the
// API server accepted it: refused says what it did not accept, empty if nothing;
// others are the derived objects that something else keeps changing.
func (f ImportFinding) AfterPlan(key types.NamespacedName, planned plan.ImportPlan, refused string, others []Contested) ImportFinding {
	problems := slices.Clone(planned.Problems)
	if refused != "" {
		problems = append(problems, model.Problem{Reason: model.ReasonRefused, Message: refused})
	}
	problems = append(problems, f.Problems...)
	for _, c := range others {
		problems = append(problems, contested(key, c))
	}
	f.Problems = problems
	f.Exists = planned.DerivedName != ""
	f.Sources = slices.Clone(f.Sources)
	for n := range f.Sources {
		f.Sources[n].Withdrawn = slices.Contains(planned.Withdrawn, f.Sources[n].Cluster)
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
