// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package agent is one process of Comity as the simulator runs it: the decision
// code of sync and status, the real one, under a reconciler as thin as can be.
//
// It takes caches that the simulator lets follow their servers, and a client at
// which anything may fail; it gives the writes of package apply. It mirrors
// sync/loop and sync/members where those are glue, and decides nothing itself. Only
// adapter.go knows what package plan and package exchange ask for.
package agent

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/apply"
	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

// ClusterSet is the set that all simulated clusters belong to.
const ClusterSet = "set"

// LocalKinds are those of which a process caches its own cluster's objects.
var LocalKinds = []string{
	"Namespace", "Service", "EndpointSlice", "ServiceExport", "ServiceImport", "ExportRecord", "NamespaceRecord", "MemberRecord",
}

// Process is one run of Comity, from start to crash. It remembers nothing of
// any run before.
type Process struct {
	ID     model.ClusterID
	Client *apiserver.Client
	// Local is by kind.
	Local map[string]*apiserver.Cache
	// Peers are the clusters that it has a credential for.
	Peers map[model.ClusterID]*Peer
	// Policy is what policy says of every export.
	Policy decision.Outcome
	// Lost are the peers that are lost and whose endpoints do not answer either.
	Lost []model.ClusterID
	Now  func() time.Time
	// Seen is what the reconcile that runs, or the last one, went by.
	Seen Seen
	// Sabotage breaks the process on purpose, to see that it is noticed.
	Sabotage Sabotage

	applier  *apply.Applier
	names    map[types.NamespacedName]string // import → derived Service
	met      map[types.NamespacedName][]string
	observed map[types.NamespacedName]model.Observation
	pass     map[string]int // what is to be published before the MemberRecord → attempts
}

// Key names an import or an export.
type Key = types.NamespacedName

// Seen is what a reconcile of an import went by.
type Seen struct {
	Key      types.NamespacedName
	Members  []model.ClusterID // peers that are configured, sorted
	Unsynced []model.ClusterID
	Exports  []model.Export // of this cluster and of the peers that were read
	Sources  map[model.ClusterID][]*discoveryv1.EndpointSlice
	Current  plan.Current
	Taken    []string // names of derived Services that other imports reserved
}

// Start runs a process whose local caches have listed, each up to behind(n)
// changes late, and that has read no peer yet.
func Start(id model.ClusterID, c *apiserver.Client, now func() time.Time, behind func() int) *Process {
	p := &Process{
		ID: id, Client: c, Now: now, Policy: decision.Allowed,
		Local: map[string]*apiserver.Cache{}, Peers: map[model.ClusterID]*Peer{},
		applier: apply.New(c, nil), names: map[types.NamespacedName]string{}, met: map[types.NamespacedName][]string{},
		observed: map[types.NamespacedName]model.Observation{}, pass: map[string]int{},
	}
	for _, kind := range LocalKinds {
		p.Local[kind] = c.Server.Watch(kind, "")
		p.Local[kind].Relist(behind())
	}
	for o := range p.Local["ServiceExport"].Each {
		p.pass[passExport+o.GetNamespace()+"/"+o.GetName()] = 0
	}
	for o := range p.Local["Namespace"].Each {
		p.pass[passNamespace+o.GetName()] = 0
	}
	return p
}

// Members are the configured peers, sorted.
func (p *Process) Members() []model.ClusterID {
	ids := make([]model.ClusterID, 0, len(p.Peers))
	for id := range p.Peers {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Keys are all that there is something to do for, each once, in order.
func (p *Process) Keys() []types.NamespacedName {
	keys := map[types.NamespacedName]bool{}
	for _, kind := range []string{"ServiceExport", "ServiceImport"} {
		for o := range p.Local[kind].Each {
			keys[client.ObjectKeyFromObject(o)] = true
		}
	}
	for _, kind := range []string{"Service", "EndpointSlice"} {
		for o := range p.Local[kind].Each {
			if name := o.GetLabels()[model.LabelServiceName]; name != "" {
				keys[types.NamespacedName{Namespace: o.GetNamespace(), Name: name}] = true
			}
			if key, _, is := exchange.SliceKey(asSlice(o)); is {
				keys[key] = true
			}
		}
	}
	for o := range p.Local["ExportRecord"].Each {
		if key, is := recordKey(o.GetName()); is {
			keys[key] = true
		}
	}
	for key := range p.met {
		keys[key] = true
	}
	for key := range p.names { // the event of what was deleted names it
		keys[key] = true
	}
	for what := range p.pass {
		if export, is := strings.CutPrefix(what, passExport); is {
			namespace, name, _ := strings.Cut(export, "/")
			keys[types.NamespacedName{Namespace: namespace, Name: name}] = true
		}
	}
	for _, id := range p.Members() {
		p.Peers[id].addKeys(keys)
	}
	return sortedKeys(keys)
}

func asSlice(o client.Object) *discoveryv1.EndpointSlice {
	if s, is := o.(*discoveryv1.EndpointSlice); is {
		return s
	}
	return &discoveryv1.EndpointSlice{}
}

// write makes the writes that are planned; the agent's only way to do so.
func (p *Process) write(actions []plan.Action) ([]plan.Object, error) {
	return p.applier.Apply(context.Background(), actions)
}

// get reads an object of the own cluster as the cache has it; nil if it has none.
func get[T any](p *Process, kind, namespace, name string) *T {
	o, _ := any(p.Local[kind].Get(namespace, name)).(*T)
	return o
}

// local is one export as this cluster holds it.
type local struct {
	key       types.NamespacedName
	export    *mcsv1beta1.ServiceExport
	service   *corev1.Service
	namespace *corev1.Namespace
	sources   []*discoveryv1.EndpointSlice
}

func (p *Process) read(key types.NamespacedName) local {
	l := local{key: key, namespace: get[corev1.Namespace](p, "Namespace", "", key.Namespace)}
	l.export = get[mcsv1beta1.ServiceExport](p, "ServiceExport", key.Namespace, key.Name)
	if l.export == nil || l.export.DeletionTimestamp != nil {
		l.export = nil
		return l
	}
	l.service = get[corev1.Service](p, "Service", key.Namespace, key.Name)
	for o := range p.Local["EndpointSlice"].Each {
		s := asSlice(o)
		if s.Namespace == key.Namespace && s.Labels[discoveryv1.LabelServiceName] == key.Name {
			l.sources = append(l.sources, s)
		}
	}
	return l
}

// exchangeExists reports whether an exchange namespace can be written to.
func (p *Process) exchangeExists(name string) bool {
	namespace := get[corev1.Namespace](p, "Namespace", "", name)
	return namespace != nil && namespace.DeletionTimestamp == nil && namespace.Labels[model.LabelExchangeFrom] == string(p.ID)
}

func userNamespace(namespace *corev1.Namespace) bool {
	_, isExchange := namespace.Labels[model.LabelExchangeFrom]
	return namespace.DeletionTimestamp == nil && !isExchange && namespace.Name != "comity-system" && !exchange.ReservedNamespace(namespace.Name)
}

// What the first pass is made of.
const (
	passExport    = "export "
	passNamespace = "namespace "
)

// attempted counts one attempt at what the first pass waits for.
func (p *Process) attempted(what string, succeeded bool) {
	attempts, waiting := p.pass[what]
	switch {
	case waiting && !succeeded && attempts < 2:
		p.pass[what]++
	case waiting:
		delete(p.pass, what)
	}
}

// Namespace brings the record of one namespace up to date.
func (p *Process) Namespace(name string) error {
	shared := model.ExchangeNamespace(p.ID)
	if !p.exchangeExists(shared) {
		return nil
	}
	desired := map[string]map[string]string{}
	if namespace := get[corev1.Namespace](p, "Namespace", "", name); namespace != nil && userNamespace(namespace) {
		desired[name] = map[string]string{}
	}
	var current []*exchangev1alpha1.NamespaceRecord
	if record := get[exchangev1alpha1.NamespaceRecord](p, "NamespaceRecord", shared, name); record != nil {
		current = append(current, record)
	}
	_, err := p.write(plan.Namespaces(shared, desired, current))
	p.attempted(passNamespace+name, err == nil)
	return err
}

// Namespaces are the names that Namespace is for.
func (p *Process) Namespaces() []string {
	names := map[string]bool{}
	for _, kind := range []string{"Namespace", "NamespaceRecord"} {
		for o := range p.Local[kind].Each {
			names[o.GetName()] = true
		}
	}
	for what := range p.pass {
		if name, is := strings.CutPrefix(what, passNamespace); is {
			names[name] = true
		}
	}
	return sorted(names)
}

// Member writes the MemberRecord once everything was published.
func (p *Process) Member() error {
	shared := model.ExchangeNamespace(p.ID)
	if len(p.pass) > 0 || !p.exchangeExists(shared) {
		return nil
	}
	record := get[exchangev1alpha1.MemberRecord](p, "MemberRecord", shared, string(p.ID))
	desired := exchangev1alpha1.MemberRecordSpec{ClusterID: string(p.ID), ClusterSet: ClusterSet, Version: "simulated"}
	_, err := p.write(plan.Member(shared, desired, record))
	return err
}
