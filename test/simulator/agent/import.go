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

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/status/compute"
	"github.com/comity-mcs/comity/sync/apply"
	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/merge"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// maxRounds is sync/loop's.
const maxRounds = 4

// Import brings one import up to date.
func (p *Process) Import(key types.NamespacedName) error {
	l := p.read(key)
	in, observed := p.resolve(l)
	if l.namespace == nil || !userNamespace(l.namespace) {
		observed.Import = nil
		p.observed[key] = observed
		p.hold(key, "") // with the namespace went the Service that had the name
		return nil
	}
	in.Current = p.current(key)
	p.Seen.Current = in.Current
	planned, err := p.bring(&in)
	observed.Problems = planned.Problems
	if err == nil || apply.ClassOf(err) == apply.Refused {
		p.tell(key, observed, planned.DerivedName != "", l.export != nil)
	}
	p.remember(key, err)
	return err
}

func (p *Process) tell(key types.NamespacedName, observed model.Observation, stands, exported bool) {
	if !exported && !stands && observed.Import == nil && len(observed.Problems) == 0 {
		delete(p.met, key)
		delete(p.observed, key)
		return
	}
	p.observed[key] = observed
}

// bring plans and applies until nothing is outstanding.
func (p *Process) bring(in *plan.ImportInput) (plan.ImportPlan, error) {
	var planned plan.ImportPlan
	for range maxRounds {
		in.Taken = p.taken(in.Key)
		p.Seen.Taken = in.Taken
		planned = p.plan(*in)
		p.hold(in.Key, planned.DerivedName)
		applied, err := p.write(planned.Actions)
		if err != nil || !planned.AwaitsService || len(planned.Actions) == 0 {
			return planned, err
		}
		in.Current = in.Current.After(planned.Actions, applied)
	}
	return planned, nil
}

// resolve merges the exports that reach this cluster.
func (p *Process) resolve(l local) (plan.ImportInput, model.Observation) {
	in := plan.ImportInput{Key: l.key, Self: p.ID, Sources: map[model.ClusterID][]*discoveryv1.EndpointSlice{}}
	var exports []model.Export
	for _, id := range p.Members() {
		peer := p.Peers[id]
		if !peer.Synced() {
			in.Unsynced = append(in.Unsynced, id)
			continue
		}
		if e, has := peer.export(l.key); has {
			exports = append(exports, e)
			in.Sources[id] = peer.copies(l.key)
		}
	}
	if l.export != nil {
		own, err := exchange.LocalExport(p.ID, l.export, l.service)
		switch {
		case err != nil || p.Policy == decision.Denied:
		case p.Policy == decision.NotEvaluated:
			in.Unsynced = append(in.Unsynced, p.ID)
		default:
			exports = append(exports, own)
			in.Sources[p.ID] = slices.DeleteFunc(slices.Clone(l.sources), func(s *discoveryv1.EndpointSlice) bool {
				return s.AddressType == discoveryv1.AddressTypeFQDN
			})
		}
	}
	p.Seen = Seen{Key: l.key, Members: p.Members(), Unsynced: in.Unsynced, Exports: exports, Sources: in.Sources}
	observed := model.Observation{Publication: model.PublicationNone, Unsynced: in.Unsynced}
	in.Desired, observed.Conflicts = merge.Resolve(exports)
	observed.Import = in.Desired
	return in, observed
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

// taken are the names that other imports of the namespace hold; hold keeps one.
func (p *Process) taken(key types.NamespacedName) []string {
	names := map[string]bool{}
	for other, name := range p.names {
		if other != key && other.Namespace == key.Namespace &&
			(name == model.DerivedName(key.Name) || name == model.AlternateDerivedName(key.Name)) {
			names[name] = true
		}
	}
	return sorted(names)
}

func (p *Process) hold(key types.NamespacedName, name string) {
	if name == "" {
		delete(p.names, key)
		return
	}
	p.names[key] = name
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
	if seen, has := p.observed[key]; has {
		in.Observation = &seen
	}
	wanted := compute.Import(in, metav1.NewTime(p.Now().Truncate(1e9)))
	if compute.SameImport(imported.Status, wanted) {
		return nil
	}
	return p.Client.ApplyImportStatus(imported, wanted)
}
