// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// Publish brings the records and slice copies of one export up to date.
func (p *Process) Publish(key types.NamespacedName) error {
	p.Seen = Seen{Key: key}
	l := p.read(key)
	in := plan.PublishInput{Key: key}
	name := model.RecordName(key.Namespace, key.Name)
	for o := range p.Local["ExportRecord"].Each {
		if record, is := o.(*exchangev1alpha1.ExportRecord); is && record.Name == name {
			in.CurrentRecords = append(in.CurrentRecords, record)
		}
	}
	for o := range p.Local["EndpointSlice"].Each {
		labels := o.GetLabels()
		if labels[model.LabelExportNamespace] == key.Namespace && labels[model.LabelExportName] == key.Name {
			in.CurrentSlices = append(in.CurrentSlices, asSlice(o))
		}
	}
	settled := p.decide(&in, l)
	planned := plan.Publish(in)
	_, err := p.write(planned.Actions)
	p.attempted(passExport+key.Namespace+"/"+key.Name, l.export == nil || settled && err == nil && len(planned.Problems) == 0)
	return err
}

// decide works out what is to stand in the exchange, and whether that is final.
func (p *Process) decide(in *plan.PublishInput, l local) (settled bool) {
	if l.export == nil {
		return true
	}
	export, err := exchange.LocalExport(p.ID, l.export, l.service)
	if err != nil || exchange.ReservedNamespace(l.key.Namespace) {
		return true
	}
	scope, err := scopeOf(l)
	if err != nil || scope.Empty() {
		return true
	}
	for _, source := range l.sources {
		if s, ok := exchange.CopySlice(l.key, source); ok {
			in.Slices = append(in.Slices, s)
		}
	}
	switch p.Policy {
	case decision.Denied:
		in.Slices = nil
		return true
	case decision.NotEvaluated:
		leave(in, l)
		return false
	}
	record := exchange.Record(export)
	in.Record = &record
	in.Audience, settled = p.audience(scope)
	return settled
}

func scopeOf(l local) (model.Scope, error) {
	scope, err := model.ScopeOfExport(l.export)
	if err != nil || l.namespace == nil {
		return scope, err
	}
	limit, err := model.ScopeOfNamespace(l.namespace)
	return scope.Intersect(limit), err
}

// leave keeps the records as they are and lets the endpoints follow.
func leave(in *plan.PublishInput, l local) {
	for _, record := range in.CurrentRecords {
		if model.IsManaged(record) && record.Spec.ExportUID == l.export.UID {
			in.Record = &record.Spec
			in.Audience = append(in.Audience, record.Namespace)
		}
	}
	if in.Record == nil {
		in.CurrentRecords, in.CurrentSlices, in.Slices = nil, nil, nil
	}
}

// audience lists the exchange namespaces for a scope that are there.
func (p *Process) audience(scope model.Scope) (namespaces []string, complete bool) {
	wanted := []string{model.ExchangeNamespace(p.ID)}
	complete = true
	if !scope.All() {
		wanted = nil
		for _, id := range scope.Clusters() {
			if _, member := p.Peers[id]; member {
				wanted = append(wanted, model.ScopedExchangeNamespace(p.ID, id))
			} else if id != p.ID {
				complete = false
			}
		}
	}
	for _, name := range wanted {
		if p.exchangeExists(name) {
			namespaces = append(namespaces, name)
		} else {
			complete = false
		}
	}
	return namespaces, complete
}
