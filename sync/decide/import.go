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
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
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

	// IDDoubtful is true if Self may be the id of another cluster, so that what exists
	// here under it may be imported from there.
	IDDoubtful bool

	// Members are the other members, of which those that were not read before and
	// after Exports are not Synced (see ReadTwice).
	Members []model.Member
	// Exports are what the other members export under this name, Slices what may
	// be imported of their endpoints, and SliceProblems what was left out.
	Exports       []model.Export
	Slices        map[model.ClusterID][]*discoveryv1.EndpointSlice
	SliceProblems []model.Problem
	// NotAccepted are the members, synced or not, whose exports the administrator
	// does not accept. Refusals are the exports, as far as they were read.
	NotAccepted []model.ClusterID
	Refusals    []model.Refusal
	// Verdicts are what the policies with stage Import answer, by source cluster: for
	// Exports, and for the clusters that contribute. One that is missing is
	// NotEvaluated. nil: there are no such policies.
	Verdicts map[model.ClusterID]decision.Verdict
	// Namespaces are the namespaces of that name of the members. IdentityLabels are
	// the labels that must be the same on both sides; none compares nothing.
	Namespaces     []model.MemberNamespace
	IdentityLabels []string
	// Held are the deletions that are held, those of Missing of which the
	// administrator has not confirmed the deletion.
	Held []model.Hold
	// Current is what exists of the import, whoever made it.
	Current plan.Current
	// OwnRecords are what the exchange holds of the own export; read only if
	// NeedsOwnRecords.
	OwnRecords []*exchangev1alpha1.ExportRecord
	// Definition is that of ServiceExports; read only if NeedsOwnDefinition.
	Definition Definition
	// TakeoverHold is how long a takeover is held: see model.HoldUntilConfirmed.
	// TakeoverUntil is when each hold ends that an earlier decision found.
	// FormedWithout are the members that had never been read when the import was made,
	// nor at any decision since.
	// SettlesAt is when takeovers begin to be held (see Settling.At). Deleted is what the
	// ServiceImport was that somebody deleted, if Current has none: it will be made again,
	// and what it says of the past still holds.
	TakeoverHold  time.Duration
	TakeoverUntil map[ExportID]time.Time
	FormedWithout []model.ClusterID
	SettlesAt     time.Time
	Deleted       *mcsv1beta1.ServiceImport
	Now           time.Time
	// Unanswered are the probed clusters of which no endpoint answers, Answered those
	// of which one does.
	Unanswered, Answered []model.ClusterID
	// Accepted are the addresses that are accepted from members now, as far as known.
	Accepted map[model.ClusterID]exchange.Filter
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
	// Kept, Listed and Takeovers are those of model.Observation.
	Kept      []model.ClusterID
	Listed    []model.SourceExport
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
	// Write is false where nothing may be written: the namespace is missing,
	// going or reserved, or another implementation imports.
	Write bool
	// OwnExportLost is true if what this cluster itself contributes is kept though its
	// ServiceExport was not found, or because its id is doubtful.
	OwnExportLost bool
	// HasNamespace is false if what existed here went with its namespace.
	HasNamespace bool
	Finding      ImportFinding
	// Probe are the endpoints to probe: of lost clusters, of held exports and of
	// lost slices.
	Probe map[model.ClusterID][]netip.AddrPort
	// Joined are exports that serve from now on, beside those of which the settled import
	// consists.
	Joined []Joined
	// TakeoverUntil and FormedWithout are for the view of the next decision, once
	// this one was applied. At each of these times it is to be decided again.
	TakeoverUntil map[ExportID]time.Time
	FormedWithout []model.ClusterID
	// NotEvaluated is true if policies could not be evaluated for a source, so that it
	// is to be decided again.
	NotEvaluated bool
	// WithdrawnAt is when the own export will be withdrawn, which policies deny; zero
	// if it is not denied, or does not count any more.
	WithdrawnAt time.Time
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
		out[at].Synced, out[at].Read = out[at].Synced && m.Synced, out[at].Read && m.Read
	}
	return out
}

// Import decides what one import should be. Whether this cluster's own export
// counts, policies decide; while they could not be evaluated, what exists here of
// it stays. The same holds for members that were not read, and for held deletions.
// Of members of which the namespace is not accepted, or which policies deny, nothing
// stays.
func Import(v ImportView) ImportDecision {
	problems := v.policyProblems()
	v.NotAccepted = v.Refused()
	v.Held = slices.DeleteFunc(slices.Clone(v.Held), func(h model.Hold) bool { return slices.Contains(v.NotAccepted, h.Cluster) })
	local := v.Local
	in := plan.ImportInput{
		Key: local.Key, Self: v.Self, Sources: map[model.ClusterID][]*discoveryv1.EndpointSlice{},
		LocalCluster: v.LocalCluster, MaintainSelectors: v.MaintainSelectors, Takeover: v.Takeover,
	}
	found := ImportFinding{Exported: local.Export != nil, Held: v.Held, Problems: v.sliceProblems()}
	liveness := map[model.ClusterID]model.Liveness{v.Self: {State: model.Connected}}
	for _, m := range v.Members {
		liveness[m.ID] = m.Liveness
		if !m.Synced && !slices.Contains(v.NotAccepted, m.ID) {
			found.Unsynced = append(found.Unsynced, m.ID)
		}
	}
	slices.Sort(found.Unsynced)
	others := v.importable()
	exports := others.exports
	found.Problems = slices.Concat(found.Problems, problems, v.notAcceptedProblems(), others.problems)
	for _, e := range exports {
		in.Sources[e.Cluster] = v.Slices[e.Cluster]
	}
	switch own, outcome := ownExport(v); outcome {
	case decision.Allowed:
		if _, err := exchange.Prefer(local.Export); err != nil {
			found.Problems = append(found.Problems, model.Problem{Reason: model.ReasonInvalidAnnotation, Message: err.Error()})
		}
		shared, missing, _ := exchange.Ports(local.Export, local.Service) // ownExport has found no error
		if missing != "" {
			found.Problems = append(found.Problems, model.Problem{Reason: model.ReasonInvalidAnnotation, Message: missing})
		}
		exports = append(exports, own)
		in.Sources[v.Self] = sharedSlices(local.Slices, shared)
	case decision.NotEvaluated:
		found.Unsynced = append(found.Unsynced, v.Self)
	}
	in.Unsynced = union(found.Unsynced, v.heldClusters(), others.kept)
	found.Kept = in.Unsynced
	ordered := v.precedence(exports, in.Unsynced)
	in.Desired, found.Conflicts = merge.ResolveInOrder(ordered.ordered)
	in.History, found.Takeovers = ordered.history, ordered.held
	found.Problems = append(found.Problems, ordered.problems...)
	found.Resolved = in.Desired
	d := v.complete(in, found, liveness)
	d.NotEvaluated = slices.ContainsFunc(problems, func(p model.Problem) bool { return p.Reason == model.ReasonNotEvaluated })
	d.WithdrawnAt = v.ownWithdrawnAt()
	d.OwnExportLost = slices.Contains(found.Unsynced, v.Self) && (local.Export == nil || v.ownMayBeImported())
	if d.Write && !plan.IsFrozen(d.Plan) {
		d.Joined = ordered.joined
	}
	if d.Write {
		d.TakeoverUntil = ordered.until
	}
	return d
}

// sliceProblems are those of members of which something may be imported.
func (v ImportView) sliceProblems() []model.Problem {
	return slices.DeleteFunc(slices.Clone(v.SliceProblems), func(p model.Problem) bool { return slices.Contains(v.NotAccepted, p.Cluster) })
}

// notAcceptedProblems name the exports of which the namespace is not accepted. Where
// nothing could be imported anyway, there are none.
func (v ImportView) notAcceptedProblems() []model.Problem {
	if v.ImportDisabled || v.Local.Namespace == nil {
		return nil
	}
	var out []model.Problem
	for _, r := range v.Refusals {
		if r.Reason == model.ReasonNamespaceNotAccepted {
			out = append(out, model.Problem{Reason: r.Reason, Cluster: r.Cluster, Message: fmt.Sprintf(
				"the export of cluster %s is not imported: Peer %s, spec.acceptedNamespaces: it does not list Namespace %s; to import from there, add it",
				r.Cluster, r.Peer, v.Local.Key.Namespace)})
		}
	}
	return out
}

func (v ImportView) heldClusters() []model.ClusterID {
	out := make([]model.ClusterID, len(v.Held))
	for i, hold := range v.Held {
		out[i] = hold.Cluster
	}
	return out
}

// union is every cluster of the lists once, in their order.
func union(lists ...[]model.ClusterID) []model.ClusterID {
	var out []model.ClusterID
	for _, id := range slices.Concat(lists...) {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
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
	d.Finding.Sources, d.Finding.Listed = sources(in, liveness), listed(in)
	var problems []model.Problem
	in.OnLost, problems = onLost(in.Key, v.Current, v.Local.Namespace)
	in.LostSlices = v.lostSlices(in)
	d.Finding.Problems = append(d.Finding.Problems, lostSliceProblems(in)...)
	whole := wholeTargets(in, d.Finding.Sources, v.heldClusters())
	d.Probe = withLostSlices(whole, in)
	for _, id := range v.Unanswered {
		if _, lost := whole[id]; lost {
			in.Lost = append(in.Lost, id)
		} else if _, lost := d.Probe[id]; lost {
			in.LostSlicesDown = append(in.LostSlicesDown, id)
		}
	}
	in.Answers, in.Accepted = v.Answered, v.Accepted
	d.Finding.Problems = append(d.Finding.Problems, problems...)
	d.Plan, d.Write = in, true
	d.FormedWithout = v.formedWithout()
	return d
}

// ownExport is this cluster's export, and whether it counts: NotEvaluated if
// policies could not be evaluated, the ServiceExport was lost, or what exists here may
// be of another cluster with this one's id; Denied also if there is nothing to export.
// One that is denied counts for as long as it is published.
func ownExport(v ImportView) (model.Export, decision.Outcome) {
	switch {
	case v.ownMayBeImported(), v.Local.Export == nil && v.ownExportIsLost():
		return model.Export{}, decision.NotEvaluated
	case v.Local.Export == nil:
		return model.Export{}, decision.Denied
	}
	export, err := modelExport(v.Self, v.MaintainSelectors, v.Local)
	if err != nil {
		return model.Export{}, decision.Denied
	}
	if !v.ownWithdrawnAt().IsZero() {
		return export, decision.Allowed
	}
	return export, v.Local.Verdict.Outcome
}

// ownWithdrawnAt is when the own export ceases to count, which policies deny; zero if
// they do not, or if it does not count any more.
func (v ImportView) ownWithdrawnAt() time.Time {
	if g, ok := graceOf(v.Local, v.OwnRecords, v.Now); ok {
		return g.until
	}
	return time.Time{}
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
