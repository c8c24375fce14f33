// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/status/compute"
	"github.com/comity-mcs/comity/sync/apply"
	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// maxRounds is how often one import is planned in a row.
const maxRounds = 6

// Import brings one import up to date.
func (p *Process) Import(key types.NamespacedName) error {
	v := p.importView(key)
	p.Seen = Seen{Key: key, Local: v.Local, View: v, Records: p.records(key), Import: v.Current.Import}
	d := sabotage(p.Sabotage.Import, decide.Import(sabotage(p.Sabotage.View, v)))
	p.Seen.List, p.Seen.Frozen = d.Plan.List, d.Plan.Frozen
	if !d.Write {
		p.findings[key] = d.Finding
		return nil
	}
	planned, err := p.bring(d.Plan)
	if err == nil || apply.ClassOf(err) == apply.Refused {
		p.store(key, d.Finding.AfterPlan(planned, apply.Refusals(err), nil))
	}
	return err
}

func (p *Process) store(key types.NamespacedName, found decide.ImportFinding) {
	if found.IsEmpty() {
		delete(p.findings, key)
		return
	}
	p.findings[key] = found
}

// bring plans and applies until nothing is outstanding.
func (p *Process) bring(in plan.ImportInput) (plan.ImportPlan, error) {
	var planned plan.ImportPlan
	for range maxRounds {
		in = sabotage(p.Sabotage.PlanInput, in)
		p.Seen.View.Current = in.Current
		planned = sabotage(p.Sabotage.Plan, plan.Import(in))
		if met := p.unlabeled(in.Key, planned.Actions); len(met) > 0 {
			in.Current.Slices = append(in.Current.Slices, met...)
			continue
		}
		applied, err := p.write(planned.Actions)
		if err != nil || !planned.AwaitsService || len(planned.Actions) == 0 {
			return planned, err
		}
		in.Current = in.Current.After(planned.Actions, applied)
	}
	return planned, nil
}

// unlabeled are the slices that exist under a name to be created.
func (p *Process) unlabeled(key types.NamespacedName, actions []plan.Action) (out []*discoveryv1.EndpointSlice) {
	for _, a := range actions {
		if _, is := a.Object.(*discoveryv1.EndpointSlice); !is || a.Verb != plan.Create {
			continue
		}
		s := get[discoveryv1.EndpointSlice](p, "EndpointSlice", a.Object.GetNamespace(), a.Object.GetName())
		if s != nil && s.Labels[model.LabelServiceName] != key.Name {
			out = append(out, s)
		}
	}
	return out
}

// importView reads everything that decides about one import.
func (p *Process) importView(key types.NamespacedName) decide.ImportView {
	v := decide.ImportView{
		Local: p.localExport(key), Self: p.ID, ComityNamespace: Namespace, Now: p.Now(), FormsAt: p.formsAt, Current: p.current(key),
		LocalCluster: model.LocalCluster{Families: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}},
	}
	for _, m := range p.members() {
		v.Peers = append(v.Peers, p.peerView(m, key))
	}
	for _, id := range slices.Sorted(maps.Keys(p.Removed)) {
		v.Peers = append(v.Peers, exchange.Published{Member: model.Member{ID: id}, Removed: true})
	}
	decide.ReadList(&v)
	v.Own = p.own(&v)
	return v
}

// peerView is what was read of one member, and what import policies say of it.
func (p *Process) peerView(m model.Member, key types.NamespacedName) exchange.Published {
	peer, out := p.Peers[m.ID], exchange.Published{Member: m, Known: true, Verdict: &decision.Verdict{Outcome: decision.Allowed}}
	if outcome, set := p.Imports[m.ID]; set {
		out.Verdict.Outcome = outcome
	}
	if !m.Synced {
		return out
	}
	if e, has := peer.export(key); has {
		out.Export, out.Slices, out.Problems = &e, peer.copies(key), peer.limitProblems()
	}
	out.Withdrawals = peer.withdrawals(key)
	return out
}

// own is this cluster's own export as a source of its import.
func (p *Process) own(v *decide.ImportView) decide.OwnSource {
	entry, listed := decide.OwnEntry(v)
	var live decide.Live
	if listed && decide.NeedsOwnLive(v.Local) {
		live = p.live(v.Local.Key)
	}
	return decide.Own(v.Local, entry, listed, live, p.ownRecords(v.Local.Key), v.Now)
}

func (p *Process) records(key types.NamespacedName) map[model.ClusterID]*exchangev1alpha1.ExportRecord {
	out := map[model.ClusterID]*exchangev1alpha1.ExportRecord{}
	for id, peer := range p.Peers {
		if record := peer.Record(key); record != nil {
			out[id] = record
		}
	}
	return out
}

// current reads what exists of an import, whoever made it.
func (p *Process) current(key types.NamespacedName) plan.Current {
	current := plan.Current{Import: get[mcsv1beta1.ServiceImport](p, "ServiceImport", key.Namespace, key.Name)}
	for o := range p.Local["Service"].Each {
		s, is := o.(*corev1.Service)
		if is && s.Namespace == key.Namespace && (s.Labels[model.LabelServiceName] == key.Name ||
			s.Name == model.DerivedName(key.Name) || s.Name == model.AlternateDerivedName(key.Name)) {
			current.Services = append(current.Services, s)
		}
	}
	for o := range p.Local["EndpointSlice"].Each {
		s := asSlice(o)
		if s.Namespace == key.Namespace && s.Labels[model.LabelServiceName] == key.Name {
			current.Slices = append(current.Slices, s)
		}
	}
	return current
}

// Status brings the status of one ServiceImport up to date, as package status does.
func (p *Process) Status(key types.NamespacedName) error {
	imported := get[mcsv1beta1.ServiceImport](p, "ServiceImport", key.Namespace, key.Name)
	if imported == nil || imported.DeletionTimestamp != nil || !model.IsManaged(imported) {
		return nil
	}
	in := compute.ImportInput{Import: imported}
	derived := get[corev1.Service](p, "Service", key.Namespace, imported.Annotations[model.AnnotationDerivedName])
	if derived != nil && model.IsManaged(derived) && derived.Labels[model.LabelServiceName] == key.Name {
		in.Derived = derived
	}
	for o := range p.Local["EndpointSlice"].Each {
		in.Slices = in.Slices || o.GetNamespace() == key.Namespace && o.GetLabels()[model.LabelServiceName] == key.Name
	}
	if f, has := p.findings[key]; has {
		f.Publication = model.PublicationNone
		in.Observation = &f.Observation
	}
	wanted := compute.Import(in, metav1.NewTime(p.Now().Truncate(1e9)))
	if compute.SameImport(imported.Status, wanted) {
		return nil
	}
	return p.Client.ApplyImportStatus(imported, wanted)
}
