// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package peer reads what the other members of the clusterset publish.
//
// It takes the peer Secrets in Comity's namespace; it gives the members, their
// exports, slices and namespaces, and says what changed. Credentials are checked
// before use and never logged, and nothing that a peer says is believed before
// package exchange has validated it. It writes to no cluster, save that it may
// renew the token in one of its own Secrets. KEP-2149 names the Secrets' labels.
package peer

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
)

// Options configure a Set; all fields without a default are required.
type Options struct {
	// Self is this cluster's id; a peer Secret that claims it is refused.
	Self model.ClusterID
	// ClusterSet is the set that this cluster belongs to.
	ClusterSet string
	// Namespace is Comity's own, where the peer Secrets are.
	Namespace string
	// Recorder writes events about peer Secrets.
	Recorder events.EventRecorder
	// Registry takes the package's metrics; nil registers none.
	Registry prometheus.Registerer
	// Log never receives a credential.
	Log logr.Logger
}

// Set is every peer of this cluster. All methods may be called from any
// goroutine; what they return is read-only.
type Set struct {
	opts    Options
	metrics metrics
	ctx     context.Context // ends when the process does; connections live in it
	cancel  context.CancelFunc
	listed  chan struct{}

	// view is what readers see: sorted by id, replaced as a whole, so that
	// reading takes no lock.
	view atomic.Pointer[[]reading]

	mu       sync.Mutex
	members  map[model.ClusterID]*member
	reported map[types.UID]string // what was last said of a Secret
	leads    bool                 // this replica writes the events
	untold   map[types.UID]notice // what the leader would have told
	retired  sync.WaitGroup       // connections that end; their caches go with them

	subMu sync.RWMutex
	subs  map[int]subscriber
	next  int
}

// reading is one member as readers see it; from is nil unless it is synced.
type reading struct {
	id   model.ClusterID
	from *connection
}

type subscriber struct {
	key       func(types.NamespacedName)
	member    func(model.ClusterID)
	namespace func(string)
}

// New returns a Set without any peer.
func New(opts Options) *Set {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Set{
		opts: opts, metrics: newMetrics(opts.Registry), ctx: ctx, cancel: cancel, listed: make(chan struct{}),
		members: map[model.ClusterID]*member{}, reported: map[types.UID]string{}, untold: map[types.UID]notice{}, subs: map[int]subscriber{},
	}
	s.view.Store(&[]reading{})
	return s
}

// Listed is closed once every peer Secret present at start was looked at.
// Before that Members is incomplete and nothing may be concluded from it.
func (s *Set) Listed() <-chan struct{} { return s.listed }

// Members lists the other members by id, connected or not.
func (s *Set) Members() []model.Member {
	view := *s.view.Load()
	out := make([]model.Member, len(view))
	for i, r := range view {
		out[i] = model.Member{ID: r.id, Synced: r.from != nil}
	}
	return out
}

// Exports are what the synced peers export as key, sorted by cluster. Records
// that are not valid are left out; they were reported when they were read.
func (s *Set) Exports(key types.NamespacedName) []model.Export {
	var out []model.Export
	for _, r := range *s.view.Load() {
		if r.from == nil {
			continue
		}
		if export, ok := r.from.export(key); ok {
			out = append(out, export)
		}
	}
	return out
}

// Slices are the EndpointSlice copies that cluster publishes for key, sorted by
// name, without the parts that may not be imported. None if the cluster is not synced.
func (s *Set) Slices(cluster model.ClusterID, key types.NamespacedName) []*discoveryv1.EndpointSlice {
	for _, r := range *s.view.Load() {
		if r.id != cluster || r.from == nil {
			continue
		}
		var out []*discoveryv1.EndpointSlice
		for _, slice := range r.from.slices(key) {
			if clean, _ := exchange.CleanSlice(slice); clean != nil {
				out = append(out, clean)
			}
		}
		return out
	}
	return nil
}

// Namespace says of every member whether it has a namespace called name.
func (s *Set) Namespace(name string) []model.MemberNamespace {
	view := *s.view.Load()
	out := make([]model.MemberNamespace, len(view))
	for i, r := range view {
		out[i] = model.MemberNamespace{Cluster: r.id, Presence: model.NamespaceUnknown}
		if r.from != nil {
			out[i] = r.from.namespace(name)
		}
	}
	return out
}

// Keys lists every export of every synced peer, each once, in no order.
func (s *Set) Keys() []types.NamespacedName {
	keys := map[types.NamespacedName]struct{}{}
	for _, r := range *s.view.Load() {
		if r.from == nil {
			continue
		}
		for _, key := range r.from.keys() {
			keys[key] = struct{}{}
		}
	}
	return slices.Collect(maps.Keys(keys))
}

// State is how one peer is, in the words of the events on its Secret.
type State struct {
	ID     model.ClusterID
	Secret types.NamespacedName
	Synced bool
	// Reason and Message say what is wrong; empty if nothing is.
	Reason, Message string
}

// States lists the state of every member, by id.
func (s *Set) States() []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []State
	for _, id := range slices.Sorted(maps.Keys(s.members)) {
		out = append(out, s.members[id].state())
	}
	return out
}

// Subscribe calls key when an export or its slices changed, and member when a
// peer appeared, became synced, lost that, or went. Neither may block. The
// returned function ends the subscription.
func (s *Set) Subscribe(key func(types.NamespacedName), member func(model.ClusterID)) func() {
	return s.subscribe(subscriber{key: key, member: member, namespace: func(string) {}})
}

// SubscribeNamespaces calls namespace when what Namespace answers for that name
// may have changed in one peer, and member as Subscribe does. Neither may block.
// The returned function ends the subscription.
func (s *Set) SubscribeNamespaces(namespace func(string), member func(model.ClusterID)) func() {
	return s.subscribe(subscriber{key: func(types.NamespacedName) {}, member: member, namespace: namespace})
}

func (s *Set) subscribe(sub subscriber) func() {
	s.subMu.Lock()
	defer s.subMu.Unlock()
	n := s.next
	s.next++
	s.subs[n] = sub
	return func() {
		s.subMu.Lock()
		defer s.subMu.Unlock()
		delete(s.subs, n)
	}
}

func (s *Set) tellKey(key types.NamespacedName) {
	s.subMu.RLock()
	defer s.subMu.RUnlock()
	for _, sub := range s.subs {
		sub.key(key)
	}
}

func (s *Set) tellNamespace(name string) {
	s.subMu.RLock()
	defer s.subMu.RUnlock()
	for _, sub := range s.subs {
		sub.namespace(name)
	}
}

func (s *Set) tellMember(id model.ClusterID) {
	s.subMu.RLock()
	defer s.subMu.RUnlock()
	for _, sub := range s.subs {
		sub.member(id)
	}
}
