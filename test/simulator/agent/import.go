// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/status/compute"
	"github.com/comity-mcs/comity/sync/apply"
	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// maxRounds is how often one import is planned in a row.
const maxRounds = 4

// Import brings one import up to date.
func (p *Process) Import(key types.NamespacedName) error {
	v := p.importView(key)
	p.Seen = Seen{Key: key, Local: v.Local, View: v}
	d := sabotage(p.Sabotage.Import, decide.Import(sabotage(p.Sabotage.View, v)))
	if !d.Write {
		if !d.HasNamespace {
			p.names.Release(key)
		}
		p.findings[key] = d.Finding
		return nil
	}
	planned, err := p.bring(d.Plan)
	refused := ""
	if apply.ClassOf(err) == apply.Refused {
		refused = err.Error()
	}
	if err == nil || refused != "" {
		p.store(key, d.Finding.AfterPlan(key, planned, refused, nil))
	}
	p.remember(key, err)
	return err
}

func (p *Process) store(key types.NamespacedName, found decide.ImportFinding) {
	if found.IsEmpty() {
		delete(p.met, key)
		delete(p.findings, key)
		return
	}
	p.findings[key] = found
}

// remember keeps the name of a slice that a create met.
func (p *Process) remember(key types.NamespacedName, err error) {
	var failed *apply.Error
	if !errors.As(err, &failed) || failed.Class != apply.NameTaken {
		return
	}
	if _, is := failed.Action.Object.(*discoveryv1.EndpointSlice); is {
		p.met[key] = append(p.met[key], failed.Action.Object.GetName())
	}
}

// bring plans and applies until nothing is outstanding.
func (p *Process) bring(in plan.ImportInput) (plan.ImportPlan, error) {
	var planned plan.ImportPlan
	for range maxRounds {
		in = sabotage(p.Sabotage.PlanInput, in)
		p.names.Choose(in.Key, func(taken []string) string {
			in.Taken, p.Seen.Taken = taken, taken
			return plan.Name(in)
		})
		p.Seen.View.Current = in.Current
		planned = sabotage(p.Sabotage.Plan, plan.Import(in))
		applied, err := p.write(planned.Actions)
		if err != nil || !planned.AwaitsService || len(planned.Actions) == 0 {
			return planned, err
		}
		in.Current = in.Current.After(planned.Actions, applied)
	}
	return planned, nil
}

// importView reads everything that decides about one import.
func (p *Process) importView(key types.NamespacedName) decide.ImportView {
	v := decide.ImportView{
		Local: p.localExport(key), Self: p.ID, ComityNamespace: Namespace, Members: p.members(),
		LocalCluster: model.LocalCluster{Families: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}},
		Slices:       map[model.ClusterID][]*discoveryv1.EndpointSlice{}, Unanswered: p.Lost,
	}
	for _, m := range v.Members {
		peer := p.Peers[m.ID]
		if e, has := peer.export(key); m.Synced && has {
			v.Exports = append(v.Exports, e)
			v.Slices[m.ID] = peer.copies(key)
		} else if hold, held := peer.guard.Held(key); held {
			v.Held = append(v.Held, model.Hold{Cluster: m.ID, Since: hold.Since, Until: hold.Until})
		}
	}
	v.Current = p.current(key)
	return v
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
		if s.Namespace == key.Namespace && (s.Labels[model.LabelServiceName] == key.Name || slices.Contains(p.met[key], s.Name)) {
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
		in.Observation = &model.Observation{
			Publication: model.PublicationNone, Import: f.Resolved, Unsynced: f.Unsynced, Conflicts: f.Conflicts,
			Problems: f.Problems, Sources: f.Sources, Held: f.Held,
		}
	}
	wanted := compute.Import(in, metav1.NewTime(p.Now().Truncate(1e9)))
	if compute.SameImport(imported.Status, wanted) {
		return nil
	}
	return p.Client.ApplyImportStatus(imported, wanted)
}
