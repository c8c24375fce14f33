// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package agent is one process of Comity as the simulator runs it.
//
// It takes caches that follow their API servers only when the simulator lets
// them, and a client on which any call may fail. It reads a view from the caches,
// calls sync/decide and sync/plan, and writes with sync/apply. What it remembers is a
// cache, or what was found, for the status. It decides nothing itself: the decisions are
// those of the product.
package agent

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/apply"
	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
	"github.com/comity-mcs/comity/sync/remote/budget"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

const (
	// ClusterSet is the set that all simulated clusters belong to.
	ClusterSet = "set"
	// clusterUID is that of every cluster.
	clusterUID = "uid"
	// Namespace is Comity's own.
	Namespace = "comity-system"
)

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
	// Peers are the clusters that it has a Peer for, Removed those whose Peer says that
	// they were removed.
	Peers   map[model.ClusterID]*Peer
	Removed map[model.ClusterID]bool
	// Policy is the outcome of the policies for every export.
	Policy decision.Outcome
	// Imports are the outcomes of the import policies for each peer; Allowed if not set.
	Imports map[model.ClusterID]decision.Outcome
	// Excluded are the clusters to which policies forbid every export that they allow.
	Excluded []string
	// Lost are the peers that are lost and of which no endpoint answers a probe.
	Lost []model.ClusterID
	// Limits are those of what is read of each peer.
	Limits budget.Limits
	Now    func() time.Time
	// Seen is what the current or the last reconcile read.
	Seen Seen
	// Sabotage breaks the process on purpose.
	Sabotage Sabotage

	applier  *apply.Applier
	findings map[types.NamespacedName]decide.ImportFinding
	// formsAt is from when on lists form without peers that were not read.
	formsAt time.Time
	exporter
}

// Key names an import or an export.
type Key = types.NamespacedName

// Seen is what a reconcile read, before any sabotage.
type Seen struct {
	Key   types.NamespacedName
	Local decide.LocalExport
	// View is that of an import; empty while an export is published.
	View decide.ImportView
	// Records are what was read of the other members about the export, valid or not.
	Records map[model.ClusterID]*exchangev1alpha1.ExportRecord
	// Import is the ServiceImport as it was read.
	Import *mcsv1beta1.ServiceImport
	// List is what the import consists of, as was decided, and Frozen whether no property
	// of it changes; no list if nothing is written.
	List   model.List
	Frozen bool
}

// Sabotage changes what the functions of the product get or give, so that a test
// can show that the simulator notices. Nil hooks change nothing.
type Sabotage struct {
	Export    func(*decide.ExportDecision)
	View      func(*decide.ImportView)
	Import    func(*decide.ImportDecision)
	PlanInput func(*plan.ImportInput)
	Plan      func(*plan.ImportPlan)
}

func sabotage[T any](hook func(*T), value T) T {
	if hook != nil {
		hook(&value)
	}
	return value
}

// Start runs a process whose local caches have listed, each up to behind(n)
// changes late, and that has read no peer yet.
func Start(id model.ClusterID, c *apiserver.Client, now func() time.Time, behind func() int) *Process {
	p := &Process{
		ID: id, Client: c, Now: now, Policy: decision.Allowed,
		Local: map[string]*apiserver.Cache{}, Peers: map[model.ClusterID]*Peer{}, Removed: map[model.ClusterID]bool{},
		applier: apply.New(c, nil), formsAt: now().Add(waitForMembers),
		findings: map[types.NamespacedName]decide.ImportFinding{},
	}
	for _, kind := range LocalKinds {
		p.Local[kind] = c.Server.Watch(kind, "")
		p.Local[kind].Relist(behind())
	}
	p.startExporter()
	return p
}

// waitForMembers is how long lists of imports wait for members that do not answer.
const waitForMembers = 10 * time.Second

// Members are the configured peers, sorted.
func (p *Process) Members() []model.ClusterID { return slices.Sorted(maps.Keys(p.Peers)) }

// members are the peers as sync/decide sees them.
func (p *Process) members() []model.Member {
	var out []model.Member
	for _, id := range p.Members() {
		m := model.Member{ID: id, Synced: p.Peers[id].Synced(), Reported: true, Liveness: model.Liveness{State: model.Connected, Seen: true}, ConfirmMissingBefore: p.Peers[id].Confirmed}
		if slices.Contains(p.Lost, id) {
			m.Liveness.State, m.Liveness.Silent = model.Lost, true
		}
		out = append(out, m)
	}
	return out
}

// Keys are all keys that any object or memory of the process names, sorted.
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
	addRecords(keys, p.Local["ExportRecord"])
	// The events of deleted objects name the others.
	for key := range p.findings {
		keys[key] = true
	}
	for _, key := range p.seeded[decide.Exports] {
		keys[key] = true
	}
	for _, peer := range p.Peers {
		peer.addKeys(keys)
	}
	return sorted(keys)
}

func addRecords(keys map[types.NamespacedName]bool, records *apiserver.Cache) {
	for o := range records.Each {
		if key, is := model.RecordKey(o.GetName()); is {
			keys[key] = true
		}
	}
}

func sorted(keys map[types.NamespacedName]bool) []types.NamespacedName {
	return slices.SortedFunc(maps.Keys(keys), model.CompareKeys)
}

func asSlice(o client.Object) *discoveryv1.EndpointSlice {
	if s, is := o.(*discoveryv1.EndpointSlice); is {
		return s
	}
	return &discoveryv1.EndpointSlice{}
}

// write makes the planned writes; it is the only way in which a process writes
// anything but a status.
func (p *Process) write(actions []plan.Action) ([]plan.Object, error) {
	return p.applier.Apply(context.Background(), actions)
}

// get reads an object of the own cluster as the cache has it; nil if it has none.
func get[T any](p *Process, kind, namespace, name string) *T {
	o, _ := any(p.Local[kind].Get(namespace, name)).(*T)
	return o
}

func (p *Process) namespace(name string) *corev1.Namespace {
	return get[corev1.Namespace](p, "Namespace", "", name)
}
