// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package loop joins the parts of sync: queues and reconcilers that read the
// local cluster and the peers, ask merge and plan what to do, and let apply do it.
//
// It takes events; it gives records in this cluster's exchange namespaces,
// imported objects in its user namespaces, and an Observation per namespace/name
// for the status controller. It decides nothing that plan could, and runs on the
// leader only. It follows KEP-1645.
package loop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/apply"
	"github.com/comity-mcs/comity/sync/loop/internal/memory"
	"github.com/comity-mcs/comity/sync/loop/internal/wake"
	"github.com/comity-mcs/comity/sync/model"
)

// Peers is what the loop needs to know of the other members.
type Peers interface {
	// Listed is closed once every peer configured at start is in Members.
	Listed() <-chan struct{}
	Members() []model.Member
	Exports(key types.NamespacedName) []model.Export
	// Slices are what may be imported, and what was left out and why.
	Slices(cluster model.ClusterID, key types.NamespacedName) ([]*discoveryv1.EndpointSlice, []model.Problem)
	// Held are the clusters whose export of key vanished, with so many others
	// that what came of it is kept for now.
	Held(key types.NamespacedName) []model.Hold
	Keys() []types.NamespacedName
	// Subscribe calls key when an export, its slices or its hold changed, and
	// member when a peer appeared, became synced, lost that, changed its
	// Liveness state, or went.
	Subscribe(key func(types.NamespacedName), member func(model.ClusterID)) (cancel func())
}

// Admitter says whether policy lets a stored export be published.
type Admitter interface {
	Admit(ctx context.Context, export *mcsv1beta1.ServiceExport) decision.Verdict
}

// Prober says whether the endpoints of a cluster answer, as the second signal
// beside its heartbeat that it is lost.
type Prober interface {
	// Watch replaces the addresses that are probed for key; none ends it. What
	// was found of a cluster that is still among them stays.
	Watch(key types.NamespacedName, targets map[model.ClusterID][]netip.AddrPort)
	// Down are the watched clusters of key of which no endpoint answers.
	Down(key types.NamespacedName) []model.ClusterID
	// Subscribe calls changed when Down answers differently for a key.
	Subscribe(changed func(types.NamespacedName)) (cancel func())
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

	Peers Peers
	// Admitter may have a method Forget(types.NamespacedName); it is called
	// for exports that are gone.
	Admitter Admitter
	// PolicyLoaded is closed once Admitter can answer; no export is looked at
	// before, lest every restart call what is published pending for a moment.
	// nil if it always can.
	PolicyLoaded <-chan struct{}
	// PolicyChanged tells that verdicts may differ now; nil if they never do.
	// It is drained on every replica.
	PolicyChanged <-chan event.GenericEvent

	// LocalCluster is what this cluster is like; nil if that is not known. LocalClusterChanged
	// tells that it answers differently; LocalClusterKnown, if not nil, is closed once
	// it answers, which imports wait for, but not for ever.
	LocalCluster        func() model.LocalCluster
	LocalClusterChanged <-chan event.GenericEvent
	LocalClusterKnown   <-chan struct{}
	// Prober probes endpoints of lost clusters; nil never finds one down.
	Prober Prober

	// AddOn leaves importing to another implementation: exports are published,
	// and imports resolved and observed, but nothing is written to a user's
	// namespace and nothing is removed there.
	AddOn bool
	// MaintainSelectors publishes the selectors of exported Services and gives
	// derived Services theirs; Takeover adopts what the Sveltos pipeline made.
	MaintainSelectors, Takeover bool

	// Exchange is where this cluster publishes; nil is its own API server. See
	// sync/hub for the other.
	Exchange *Exchange

	// Workers is how many keys each reconciler works on at once; default 8.
	Workers int
	// Recorder takes events; default one of the manager's.
	Recorder events.EventRecorder
	// Registry takes the package's metrics; nil registers none.
	Registry prometheus.Registerer
	// Writer makes the writes; default the manager's client. Tests inject
	// faults here.
	Writer client.Client
}

// Times of the loop.
const (
	// firstRetry and lastRetry bound the back-off of a failing key. The last is
	// short, so that an API server that comes back is noticed soon.
	firstRetry = 20 * time.Millisecond
	lastRetry  = 30 * time.Second
	// missingRetry is how soon an absent exchange namespace is looked for again.
	missingRetry = 10 * time.Second
	// firstRefused and lastRefused bound the back-off of what only a change of
	// rights or rules can cure. Nothing tells of one, and at a join the exchange
	// namespace is there moments before the right to write to it.
	firstRefused = 100 * time.Millisecond
	lastRefused  = time.Minute
)

// Loop is what the status controller may ask of the running loop.
type Loop struct{ base *base }

// Observe returns what the loop last found for a namespace/name; false if it
// has not finished with that key since it became leader.
func (l *Loop) Observe(key types.NamespacedName) (model.Observation, bool) {
	return l.base.observations.Get(key)
}

// Changed is a new channel, for one reader, that tells of namespace/names whose
// Observation differs from before, and at first of all that are known. The
// object of an event is a ServiceExport that carries nothing but its name and
// namespace. Changes of one key are coalesced until read; nothing is lost.
func (l *Loop) Changed() <-chan event.GenericEvent { return l.base.observations.Changes() }

// ExchangeChanged is a new channel, for one reader, that tells that Problem may
// say something else of an exchange namespace; never where the exchange is the
// manager's own API server, whose Namespaces tell that.
func (l *Loop) ExchangeChanged() <-chan struct{} { return l.base.exchanges.Listen() }

// base is what all reconcilers share.
type base struct {
	Options
	client        client.Client
	applier       *apply.Applier
	publishing    *apply.Applier // writes to the exchange
	observations  *memory.Observations
	pass          *memory.Pass
	policies      *wake.Broadcast
	localClusters *wake.Broadcast
	exchanges     *wake.Broadcast
	hub           bool // the exchange is another API server
	conflicts     workqueue.TypedRateLimiter[reconcile.Request]
	refusals      workqueue.TypedRateLimiter[reconcile.Request]
}

// SetupWithManager adds the sync reconcilers to mgr. The manager's client must
// read from its cache, whose EndpointSlices, Services, ServiceExports,
// ServiceImports, Namespaces and exchange records cover all namespaces, with
// Shrink, TrimManagedFields or something gentler as transform.
func SetupWithManager(mgr ctrl.Manager, opts Options) (*Loop, error) {
	if opts.Workers == 0 {
		opts.Workers = 8
	}
	if len(opts.IdentityLabels) == 0 {
		opts.IdentityLabels = []string{model.LabelIdentity}
	}
	if opts.Writer == nil {
		opts.Writer = mgr.GetClient()
	}
	if opts.Recorder == nil {
		opts.Recorder = mgr.GetEventRecorder(model.FieldOwner)
	}
	applier := apply.New(opts.Writer, opts.Registry)
	publishing, hub := applier, opts.Exchange != nil
	if !hub {
		opts.Exchange = ownExchange(mgr, opts.Self)
	} else {
		publishing = applier.Through(opts.Exchange.Client)
	}
	if err := errors.Join(
		addIndexes(context.Background(), mgr.GetFieldIndexer()), addExchangeIndexes(context.Background(), opts.Exchange.Cache),
	); err != nil {
		return nil, fmt.Errorf("set up sync indexes: %w", err)
	}
	b := &base{
		Options: opts, client: mgr.GetClient(), applier: applier, publishing: publishing, hub: hub,
		observations: memory.NewObservations(), pass: memory.NewPass(), policies: &wake.Broadcast{Source: opts.PolicyChanged}, localClusters: &wake.Broadcast{Source: opts.LocalClusterChanged},
		conflicts: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		refusals:  workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRefused, lastRefused),
	}
	b.exchanges = &wake.Broadcast{Source: opts.Exchange.Changed, Each: func(e event.GenericEvent) {
		if e.Object != nil && e.Object.GetName() == model.ExchangeNamespace(opts.Self) {
			b.pass.Restart() // a new one is empty: all must be published before it says so
		}
	}}
	for _, setup := range []func(ctrl.Manager, *base) error{setupPublish, setupImport, setupNamespaces, setupMember} {
		if err := setup(mgr, b); err != nil {
			return nil, fmt.Errorf("set up sync: %w", err)
		}
	}
	for _, runnable := range []interface{ Start(context.Context) error }{b.observations, b.policies, b.localClusters, b.exchanges} {
		if err := mgr.Add(runnable); err != nil {
			return nil, fmt.Errorf("set up sync: %w", err)
		}
	}
	return &Loop{base: b}, nil
}

func (b *base) controllerOptions() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: b.Workers,
		CacheSyncTimeout:        neverTimeout,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
	}
}

// retry turns the class of a failed write into when to try again.
func (b *base) retry(ctx context.Context, req reconcile.Request, err error) (reconcile.Result, error) {
	log := ctrl.LoggerFrom(ctx)
	switch apply.ClassOf(err) {
	case apply.Conflict, apply.NameTaken:
		// The cache is behind what we or others wrote; its next event corrects
		// that. This is no error, and the queue's own retry would log it as one.
		log.V(1).Info("written meanwhile, looking again", "reason", err.Error())
		return reconcile.Result{RequeueAfter: b.conflicts.When(req)}, nil
	case apply.NamespaceMissing:
		log.V(1).Info("namespace is gone or going, nothing written", "reason", err.Error())
		return reconcile.Result{RequeueAfter: missingRetry}, nil
	case apply.Refused:
		log.Info("the API server refuses a write", "reason", err.Error())
		return reconcile.Result{RequeueAfter: b.refusals.When(req)}, nil
	}
	select {
	case <-ctx.Done(): // shutting down, which is no failure of this key
		return reconcile.Result{}, nil
	default:
		return reconcile.Result{}, err
	}
}

func (b *base) settled(req reconcile.Request) {
	b.conflicts.Forget(req)
	b.refusals.Forget(req)
}
