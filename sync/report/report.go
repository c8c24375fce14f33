// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/comity-mcs/comity/sync/model"
)

// Peers is what is asked of the other members.
type Peers interface {
	// Listed is closed once every peer configured at start is in Members.
	Listed() <-chan struct{}
	Members() []model.Member
	Keys() []types.NamespacedName
	Exports(key types.NamespacedName) []model.Export
	Refusals(key types.NamespacedName) []model.Refusal
	Slices(cluster model.ClusterID, key types.NamespacedName) ([]*discoveryv1.EndpointSlice, []model.Problem)
	Held(key types.NamespacedName) []model.Hold
	Reports(key types.NamespacedName) []model.Report
	Subscribe(key func(types.NamespacedName), member func(model.ClusterID)) (cancel func())
	SubscribeReports(report func(types.NamespacedName), member func(model.ClusterID)) (cancel func())
}

// Observations is what the sync loop found.
type Observations interface {
	Observe(key types.NamespacedName) (model.Observation, bool)
}

// Exchange is the API server in which this cluster publishes. Client, Cache and
// Problem belong together; without them it is the manager's.
type Exchange struct {
	// Client reads ImportRecords from Cache, indexed as asked of it, and writes.
	Client client.Client
	// Cache tells of changes of ImportRecords.
	Cache cache.Cache
	// Live reads the one Lease; by default Client does, or the manager's reader
	// without a cache.
	Live client.Reader
	// Problem says why nothing can be published in an exchange namespace now;
	// "" if it can.
	Problem func(ctx context.Context, namespace string) string
	// Changed tells that Problem may say something else; nil if events of
	// Namespaces in the manager's cache tell that.
	Changed <-chan struct{}
}

// Options configure a Reporter; all fields without a default are required.
type Options struct {
	// Self is this cluster's id, ClusterUID the UID of its kube-system namespace.
	Self       model.ClusterID
	ClusterUID types.UID
	// Namespace is Comity's own; nothing is ever imported into it.
	Namespace string

	Peers        Peers
	Observations Observations
	// Observed tells of keys whose Observation differs from before, by an object
	// of that namespace and name. It is read on the leader only.
	Observed <-chan event.GenericEvent
	// Exchange is by default this cluster's own API server.
	Exchange Exchange
	// Import is false where another implementation imports.
	Import bool

	// Interval is how often the Lease is renewed; default 10 s.
	Interval time.Duration
	// Clock is the system's by default.
	Clock clock.WithTicker
	// Registry takes the package's metrics; nil registers none.
	Registry prometheus.Registerer
	// Changed is called when Destinations may give something else for a key
	// than before, and with the zero key when it may for any. It must not block.
	// Changes of the Observation are not told of, for they are told by the loop.
	// nil tells nobody.
	Changed func(types.NamespacedName)
}

// workers is how many keys are worked on at once: few, for nobody's traffic
// waits for a report.
const workers = 4

// Reporter answers what came of the local exports elsewhere.
type Reporter struct {
	opts   Options
	client client.Client
}

// SetupWithManager adds the heartbeat and the reports to mgr. The manager's cache
// must hold Namespaces and ServiceExports, with UIDs, of all namespaces, and
// managedFields of ImportRecords with manager, operation and subresource.
//
// In its exchange namespaces the agent needs get, list, watch, create, patch and
// delete on importrecords and get, create and patch on leases.
func SetupWithManager(mgr ctrl.Manager, opts Options) (*Reporter, error) {
	if opts.Self == "" || opts.ClusterUID == "" || opts.Peers == nil || opts.Observations == nil {
		return nil, errors.New("set up reports: Self, ClusterUID, Peers and Observations are required")
	}
	if e := opts.Exchange; (e.Client == nil) != (e.Cache == nil) || (e.Client == nil) != (e.Problem == nil) {
		return nil, errors.New("set up reports: Client, Cache and Problem of an exchange belong together")
	}
	withDefaults(mgr, &opts)
	r := &Reporter{opts: opts, client: mgr.GetClient()}
	beats, err := newHeartbeat(opts)
	if err != nil {
		return nil, fmt.Errorf("set up the heartbeat: %w", err)
	}
	if err := mgr.Add(beats); err != nil {
		return nil, fmt.Errorf("set up the heartbeat: %w", err)
	}
	if err := setupRecords(mgr, opts); err != nil {
		return nil, fmt.Errorf("set up reports: %w", err)
	}
	if opts.Changed != nil {
		opts.Peers.SubscribeReports(opts.Changed, func(model.ClusterID) { opts.Changed(types.NamespacedName{}) })
	}
	return r, nil
}

func withDefaults(mgr ctrl.Manager, opts *Options) {
	if opts.Interval == 0 {
		opts.Interval = 10 * time.Second
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	e := &opts.Exchange
	switch {
	case e.Client == nil:
		e.Client, e.Cache, e.Problem = mgr.GetClient(), mgr.GetCache(), localProblem(mgr.GetClient(), opts.Self)
		e.Live = mgr.GetAPIReader()
	case e.Live == nil:
		e.Live = e.Client
	}
}

// localProblem judges exchange namespaces of this cluster's own API server.
func localProblem(reader client.Reader, self model.ClusterID) func(context.Context, string) string {
	return func(ctx context.Context, name string) string {
		namespace := &corev1.Namespace{}
		if err := reader.Get(ctx, types.NamespacedName{Name: name}, namespace); err != nil {
			return fmt.Sprintf("exchange namespace %s cannot be read: %v", name, err)
		}
		if namespace.DeletionTimestamp != nil || namespace.Labels[model.LabelExchangeFrom] != string(self) {
			return fmt.Sprintf("namespace %s is no exchange namespace of cluster %s, or is being deleted", name, self)
		}
		return ""
	}
}
