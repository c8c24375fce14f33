// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

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
type Set struct{ opts Options }

// New returns a Set without any peer.
func New(opts Options) *Set { return &Set{opts: opts} }

// SetupWithManager makes mgr watch the peer Secrets on every replica. The
// manager's cache of Secrets should be restricted to Options.Namespace.
func (s *Set) SetupWithManager(_ ctrl.Manager) error { return nil }

// Listed is closed once every peer Secret present at start was looked at.
// Before that Members is incomplete and nothing may be concluded from it.
func (s *Set) Listed() <-chan struct{} { return nil }

// Members lists the other members by id, connected or not.
func (s *Set) Members() []model.Member { return nil }

// Exports are what the synced peers export as key, sorted by cluster.
func (s *Set) Exports(_ types.NamespacedName) []model.Export { return nil }

// Slices are the EndpointSlice copies that cluster publishes for key, sorted by name.
func (s *Set) Slices(_ model.ClusterID, _ types.NamespacedName) []*discoveryv1.EndpointSlice {
	return nil
}

// Namespace says of every member whether it has a namespace called name.
func (s *Set) Namespace(_ string) []model.MemberNamespace { return nil }

// Keys lists every export of every synced peer.
func (s *Set) Keys() []types.NamespacedName { return nil }

// Subscribe calls key when an export or its slices changed, and member when a
// peer appeared, became synced, lost that, or went. Neither may block. The
// returned function ends the subscription.
func (s *Set) Subscribe(_ func(types.NamespacedName), _ func(model.ClusterID)) func() {
	return func() {}
}
