// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/decide"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

// exporter is what the process remembers of what it publishes.
type exporter struct {
	pass *decide.FirstPass
	// seeded are the keys that the pass began with.
	seeded map[decide.Part][]types.NamespacedName
}

func (p *Process) startExporter() {
	p.pass, p.seeded = &decide.FirstPass{}, map[decide.Part][]types.NamespacedName{}
	for part, kind := range map[decide.Part]string{decide.Exports: "ServiceExport", decide.Namespaces: "Namespace"} {
		var keys []types.NamespacedName
		for o := range p.Local[kind].Each {
			keys = append(keys, client.ObjectKeyFromObject(o))
		}
		p.pass.Seed(part, keys)
		p.seeded[part] = keys
	}
}

// Publish brings the records and slice copies of one export up to date.
func (p *Process) Publish(key types.NamespacedName) error {
	v := p.exportView(key)
	p.Seen = Seen{Key: key, Local: v.Local}
	d := decide.Export(v)
	if d.NeedsLive {
		v.Live = p.live(key)
		d = decide.Export(v)
	}
	d = sabotage(p.Sabotage.Export, d)
	planned := plan.Publish(d.Plan)
	err := p.publish(planned)
	_, done := d.AfterWrite(planned.Problems, err)
	p.pass.Attempted(decide.Exports, key, done)
	return err
}

// publish makes the writes of a plan as the controller does.
func (p *Process) publish(planned plan.PublishPlan) error {
	lists := func(all [][]plan.Action) error {
		var first error
		for _, actions := range all {
			if _, err := p.write(actions); first == nil {
				first = err
			}
		}
		return first
	}
	unpublished := lists(planned.Publish)
	if err := lists(planned.Withdraw); err != nil || unpublished != nil {
		return cmp.Or(err, unpublished)
	}
	return lists(planned.Leave)
}

// exportView reads everything that decides about one export. Nothing is the own one because
// of a Lease: what a hostile user publishes by hand is that of a hostile agent.
func (p *Process) exportView(key types.NamespacedName) decide.ExportView {
	v := decide.ExportView{
		Local: p.localExport(key), Self: p.ID, Members: p.members(), Removed: slices.Sorted(maps.Keys(p.Removed)), Unavailable: map[string]string{}, Now: p.Now(),
	}
	v.Records = p.ownRecords(key)
	for o := range p.Local["EndpointSlice"].Each {
		if of, is := model.LabeledExport(o.GetLabels()); is && of == key {
			v.Copies = append(v.Copies, asSlice(o))
		}
	}
	for _, name := range decide.ExchangeNamespaces(v) {
		if !p.exchangeExists(name) {
			v.Unavailable[name] = "exchange namespace " + name + " does not exist"
		}
	}
	return v
}

// live is what the API server, and no cache, has of one export.
func (p *Process) live(key types.NamespacedName) decide.Live {
	live := decide.Live{Read: true}
	if o := p.Client.Server.Get(apiserver.Ref{Kind: "ServiceExport", Namespace: key.Namespace, Name: key.Name}); o != nil && o.GetDeletionTimestamp() == nil {
		live.Export = o.GetUID()
	}
	live.HasService = p.Client.Server.Get(apiserver.Ref{Kind: "Service", Namespace: key.Namespace, Name: key.Name}) != nil
	return live
}

// ownRecords are what the exchange holds of an export.
func (p *Process) ownRecords(key types.NamespacedName) (records []*exchangev1alpha1.ExportRecord) {
	for o := range p.Local["ExportRecord"].Each {
		if record, is := o.(*exchangev1alpha1.ExportRecord); is && record.Name == model.RecordName(key.Namespace, key.Name) {
			records = append(records, record)
		}
	}
	return records
}

// localExport reads one export as this cluster has it.
func (p *Process) localExport(key types.NamespacedName) decide.LocalExport {
	l := decide.LocalExport{Key: key, Namespace: p.namespace(key.Namespace)}
	l.Export = get[mcsv1beta1.ServiceExport](p, "ServiceExport", key.Namespace, key.Name)
	if l.Export == nil || l.Export.DeletionTimestamp != nil {
		l.Export = nil
		return l
	}
	l.Verdict = decision.Verdict{Outcome: p.Policy}
	if p.Policy == decision.Allowed {
		l.Verdict.Excluded = p.Excluded
	}
	l.Service = get[corev1.Service](p, "Service", key.Namespace, key.Name)
	for o := range p.Local["EndpointSlice"].Each {
		if s := asSlice(o); s.Namespace == key.Namespace && s.Labels[discoveryv1.LabelServiceName] == key.Name {
			l.Slices = append(l.Slices, s)
		}
	}
	return l
}

// exchangeExists reports whether an exchange namespace can be written to.
func (p *Process) exchangeExists(name string) bool {
	namespace := p.namespace(name)
	return namespace != nil && namespace.DeletionTimestamp == nil && namespace.Labels[model.LabelExchangeFrom] == string(p.ID)
}

// PublishNamespaces brings the NamespaceRecords up to date, each by itself.
func (p *Process) PublishNamespaces() {
	keys := map[types.NamespacedName]bool{}
	for _, kind := range []string{"Namespace", "NamespaceRecord"} {
		for o := range p.Local[kind].Each {
			keys[types.NamespacedName{Name: o.GetName()}] = true
		}
	}
	for _, key := range p.seeded[decide.Namespaces] {
		keys[key] = true
	}
	shared := model.ExchangeNamespace(p.ID)
	for _, key := range sorted(keys) {
		if !p.exchangeExists(shared) {
			return
		}
		current := get[exchangev1alpha1.NamespaceRecord](p, "NamespaceRecord", shared, key.Name)
		actions, _ := plan.Record(decide.NamespaceRecord(p.ID, key.Name, p.namespace(key.Name), Namespace, nil, nil), current, false)
		_, err := p.write(actions)
		p.pass.Attempted(decide.Namespaces, key, err == nil)
	}
}

// PublishMember writes the MemberRecord once everything was published.
func (p *Process) PublishMember() error {
	shared := model.ExchangeNamespace(p.ID)
	if !p.pass.IsComplete() || !p.exchangeExists(shared) {
		return nil
	}
	current := get[exchangev1alpha1.MemberRecord](p, "MemberRecord", shared, string(p.ID))
	known := exchangev1alpha1.MemberRecordSpec{ClusterSet: ClusterSet, ClusterUID: clusterUID, Version: "simulated"}
	desired := decide.Member(p.ID, known, model.LocalCluster{}, current)
	actions, _ := plan.Record(desired, current, false)
	_, err := p.write(actions)
	return err
}
