// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package controllers reconciles what this cluster publishes, imports and reports.
//
// Each controller reads a view from caches, lets package decide say what should
// exist and package plan what to change, has package apply write it, and stores
// what was found for the status controller. It takes events and writes only to
// this cluster and to its own exchange namespaces. It runs on the leader only and
// follows KEP-1645.
package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/apply"
	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/endpointprobe"
	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
)

// Peers is what the controllers read of the other members.
type Peers interface {
	// Listed is closed once every peer configured at start is in Members.
	Listed() <-chan struct{}
	// Members are the members that were not removed. A cluster that is none is not read.
	Members() []model.Member
	// Removed are the clusters that an administrator removed.
	Removed() []model.ClusterID
	// OwnIDClaim is the UID of another cluster that a Peer with this cluster's own id names,
	// which may mean that this cluster was started with the id of that peer; empty if there
	// is none.
	OwnIDClaim() types.UID
	// Keys are what the members export, valid or not, held or not.
	Keys() []types.NamespacedName
	// Read is what every member, and every cluster that was removed, is known to publish of
	// key, sorted by cluster; with slices only if asked for.
	Read(key types.NamespacedName, withSlices bool) []exchange.Published
	// Reports are what the members report of importing this cluster's export.
	Reports(key types.NamespacedName) []model.Report
	// Subscribe has subscriber called with each change of what Members, Read and
	// Reports return, and with this cluster's own id when OwnIDClaim changed.
	Subscribe(subscriber func(model.MemberChange)) (cancel func())
}

// Admitter evaluates the policies for a stored export.
type Admitter interface {
	Admit(ctx context.Context, export *mcsv1beta1.ServiceExport) decision.Verdict
	// Forget drops what is remembered of an export that is gone.
	Forget(key types.NamespacedName)
}

// Options configure the controllers; all fields without a default are required.
type Options struct {
	// Self is this cluster's id, ClusterSet the set that it belongs to, ClusterUID
	// the UID of its kube-system namespace.
	Self       model.ClusterID
	ClusterSet string
	ClusterUID types.UID
	// Namespace is Comity's own; nothing is ever imported into it.
	Namespace string
	// Version is Comity's, published in the MemberRecord.
	Version string
	// IdentityLabels are the namespace labels published and compared for namespace
	// sameness; default model.LabelIdentity.
	IdentityLabels []string
	// PublishNamespaces selects, by their labels, the namespaces whose names and
	// identity labels are published; nil selects all.
	PublishNamespaces labels.Selector

	Peers    Peers
	Admitter Admitter
	// ImportAdmitter evaluates import policies; nil if there are none.
	ImportAdmitter *PolicyCache
	// PoliciesLoaded is closed once both can answer. No export is reconciled
	// before: every restart would report what is published as pending for a moment.
	// nil if it always can.
	PoliciesLoaded <-chan struct{}
	// PoliciesChanged notifies of exports, and imports, for which one of them may answer
	// something else.
	PoliciesChanged *notify.Notifier

	// LocalCluster is what is known of this cluster.
	// LocalClusterChanged notifies of changes. LocalClusterKnown, for which imports wait, is
	// closed once it is known, or that takes too long; nil if nothing waits.
	LocalCluster        func() model.LocalCluster
	LocalClusterChanged *notify.Notifier
	LocalClusterKnown   <-chan struct{}
	// ClusterLabels are the labels of this cluster that tiers see.
	ClusterLabels map[string]string
	// Prober probes endpoints of lost clusters. A probe that fails is the second signal, beside
	// a missing heartbeat, that a cluster is lost. Default: one that is not started, and never
	// finds a cluster down.
	Prober *endpointprobe.Prober

	// ImportDisabled leaves importing to another implementation: exports are
	// published, and imports resolved and observed, but nothing is written to a
	// user's namespace and nothing is removed there.
	ImportDisabled bool
	// MaintainSelectors publishes the selectors of exported Services and gives
	// derived Services theirs; Takeover adopts what the Sveltos pipeline made.
	MaintainSelectors, Takeover bool
	// Exchange is where this cluster publishes; nil is its own API server. See
	// sync/hub for the other.
	Exchange *Exchange

	// HeartbeatInterval is how often the Lease is renewed; default 10 s.
	HeartbeatInterval time.Duration
	// Retry is how soon is tried again what nothing announces: how long the lists of new
	// imports wait for members that do not answer, how soon a key is reconciled again whose
	// exchange namespace is missing, or whose policies could not be evaluated, and the first
	// delay, which doubles each time, of a correction that something else undoes again and
	// again; default 10 s.
	Retry time.Duration
	// Workers is how many keys each controller reconciles at once; default 8.
	Workers int
	// Registry takes the package's metrics; nil registers none.
	Registry prometheus.Registerer
	// Writer makes the writes; default the manager's client. Tests inject
	// faults here.
	Writer client.Client
	// Clock is the system's by default.
	Clock clock.WithTicker
}

// Retries and their bounds.
const (
	// firstRetry and lastRetry bound the back-off of a failing key. The last is
	// short, so that an API server that is back is used soon.
	firstRetry = 20 * time.Millisecond
	lastRetry  = 30 * time.Second
	// firstRefused and lastRefused bound the back-off of what only a change of
	// rights or rules can cure. No event announces one, and a join makes the
	// exchange namespace moments before the right to write to it.
	firstRefused = 100 * time.Millisecond
	lastRefused  = time.Minute
	// neverTimeout lets a controller wait for the caches of a hub for as long as
	// they take; ending the process would end the webhook and the imports with it.
	neverTimeout = 10 * 365 * 24 * time.Hour
)

// base is what all controllers share.
type base struct {
	Options
	client       client.Client
	recorder     events.EventRecorder
	applier      *apply.Applier
	publishing   *apply.Applier // writes to the exchange
	observations *Observations
	pass         *decide.FirstPass
	passChanged  notify.Notifier // All: the first pass began again
	passComplete notify.Notifier // the MemberRecord: the first pass is complete
	// reportsChanged: other members, or what they report of local exports, changed.
	reportsChanged notify.Notifier
	hub            bool          // the exchange is another API server
	claim          atomic.Value  // see heldBy
	apiReader      client.Reader // without a cache
	undefined      atomic.Pointer[undefined]
	statements     statements
	// These are the queues of the publish, the import and the import-records controller.
	publishQueue, importQueue, reportQueue *notify.Queue
	beatSoon                               notify.Wake // has the Lease renewed at once
	changeSeconds                          *prometheus.HistogramVec
	conflicts, refusals                    workqueue.TypedRateLimiter[reconcile.Request]
}

// SetupWithManager adds the controllers to mgr. The manager's client must read
// from its cache, whose EndpointSlices, Services, ServiceExports, ServiceImports,
// Namespaces and exchange records cover all namespaces, with Shrink
// or something gentler as transform.
//
// In its exchange namespaces the agent needs get, list, watch, create, patch and
// delete on the records and EndpointSlices, and get, create and patch on leases.
func SetupWithManager(mgr ctrl.Manager, opts Options) (*Controllers, error) {
	if opts.Self == "" || opts.ClusterUID == "" || opts.Peers == nil || opts.Admitter == nil {
		return nil, errors.New("set up sync: Self, ClusterUID, Peers and Admitter are required")
	}
	b, err := newBase(mgr, opts)
	if err == nil {
		err = errors.Join(
			setupPublish(mgr, b), setupImport(mgr, b), setupNamespaceRecords(mgr, b), setupMemberRecord(mgr, b), setupImportRecords(mgr, b),
			mgr.Add(newHeartbeat(b)),
		)
	}
	if err != nil {
		return nil, fmt.Errorf("set up sync: %w", err)
	}
	b.onMembers(changesReports...)(b.reportsChanged.Publish)
	return &Controllers{b}, nil
}

func newBase(mgr ctrl.Manager, opts Options) (*base, error) {
	opts.Workers = cmp.Or(opts.Workers, 8)
	opts.Clock = cmp.Or[clock.WithTicker](opts.Clock, clock.RealClock{})
	if len(opts.IdentityLabels) == 0 {
		opts.IdentityLabels = []string{model.LabelIdentity}
	}
	opts.Prober = cmp.Or(opts.Prober, endpointprobe.New(endpointprobe.Options{}))
	opts.HeartbeatInterval, opts.Retry = cmp.Or(opts.HeartbeatInterval, 10*time.Second), cmp.Or(opts.Retry, 10*time.Second)
	applier := apply.New(cmp.Or(opts.Writer, mgr.GetClient()), opts.Registry)
	publishing, hub := applier, opts.Exchange != nil
	if !hub {
		opts.Exchange = ownExchange(mgr, opts.Self)
	} else {
		publishing = applier.Through(opts.Exchange.Client)
	}
	if err := addIndexes(context.Background(), mgr.GetFieldIndexer(), opts.Exchange.Indexer); err != nil {
		return nil, fmt.Errorf("set up indexes: %w", err)
	}
	b := &base{
		Options: opts, client: mgr.GetClient(), recorder: mgr.GetEventRecorder(model.FieldOwner), applier: applier, publishing: publishing, hub: hub,
		apiReader: mgr.GetAPIReader(), beatSoon: notify.NewWake(), observations: NewObservations(opts.Self), pass: &decide.FirstPass{},
		publishQueue: notify.NewQueue(opts.Workers), importQueue: notify.NewQueue(opts.Workers),
		// The states in between of an import that keeps changing are not reported.
		reportQueue: notify.NewPatientQueue(opts.Workers, 1),
		changeSeconds: promauto.With(opts.Registry).NewHistogramVec(prometheus.HistogramOpts{
			Name:    "comity_sync_change_seconds",
			Help:    "Time from when the agent saw a change, of a user or of a peer, to when everything was written for it, by side (export, import).",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}, []string{"side"}),
		conflicts: newBackOff(firstRetry, lastRetry), refusals: newBackOff(firstRefused, lastRefused),
	}
	// An exchange namespace that was created again is empty: the MemberRecord must not
	// return to it before everything was published there.
	opts.Exchange.Changed.Subscribe(func(notify.Change) { b.exchangeChanged() })
	return b, nil
}

// changesReports are the changes after which other clusters may report something else of an
// export, or of all.
var changesReports = []model.MemberChanged{model.ReportChanged, model.MemberOther, model.HeartbeatMissing, model.HeartbeatBack}

// membersRead returns once every member was read that nothing is known to keep from it, after
// Retry at the latest: what is reconciled before is reconciled again then. The peers that are
// configured must be known.
func (b *base) membersRead(ctx context.Context) {
	read := notify.NewWake()
	defer b.Peers.Subscribe(func(model.MemberChange) { read.Up() })()
	ctx, cancel := context.WithTimeout(ctx, b.Retry)
	defer cancel()
	for read.Up(); read.Wait(ctx); {
		if !slices.ContainsFunc(b.Peers.Members(), func(m model.Member) bool { return !m.Synced && !m.Failing }) {
			return
		}
	}
}

// onMembers is a Source.Subscribe for these changes of members: of one key, or of all.
func (b *base) onMembers(what ...model.MemberChanged) notify.Subscribe {
	return func(changed func(notify.Change)) (cancel func()) {
		return b.Peers.Subscribe(func(c model.MemberChange) {
			if slices.Contains(what, c.What) {
				changed(notify.Change{From: notify.Origin(c.ID), Key: c.Key})
			}
		})
	}
}

// exchangeChanged begins again in a hub that may be another one.
func (b *base) exchangeChanged() {
	b.claim.Store(types.UID(""))
	b.beatSoon.Up()
	b.restartPass()
}

// restartPass makes everything be published before the MemberRecord is written.
func (b *base) restartPass() {
	b.pass.Restart()
	b.passChanged.All()
}

// passed notifies once the first pass is complete.
func (b *base) passed(completed bool) {
	if completed {
		b.passComplete.Publish(notify.Change{From: notify.Own, Key: b.member()}) // readers wait for it
	}
}

// newBackOff makes a back-off of keys, each of which waits twice as long as before.
var newBackOff = workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request]

// controller begins to build a controller.
func (b *base) controller(mgr ctrl.Manager, name string, all *notify.Source) *builder.Builder {
	return ctrl.NewControllerManagedBy(mgr).Named(name).WatchesRawSource(all).WithOptions(controller.Options{
		MaxConcurrentReconciles: b.Workers, CacheSyncTimeout: neverTimeout, NewQueue: all.Queue.Open, RateLimiter: newBackOff(firstRetry, lastRetry),
	})
}

// exportsController begins to build a controller of what is exported, which watches everything of
// a local export. ofNamespace are the keys that a change of a Namespace concerns.
func (b *base) exportsController(mgr ctrl.Manager, name string, all *notify.Source, ofNamespace notify.Keys) *builder.Builder {
	return b.controller(mgr, name, all).
		Watches(&mcsv1beta1.ServiceExport{}, all.ByUsers(notify.Itself), builder.WithPredicates(notify.WithoutStatus)).
		Watches(&corev1.Service{}, all.ByUsers(b.exported)).
		Watches(&discoveryv1.EndpointSlice{}, all.ByUsers(b.exported)).
		Watches(&corev1.Namespace{}, all.ByUsers(ofNamespace))
}

// retry turns the class of a failed write into when to try again. Without an error it ends
// the back-off of req.
func (b *base) retry(ctx context.Context, req reconcile.Request, err error) (reconcile.Result, error) {
	if err == nil {
		b.conflicts.Forget(req)
		b.refusals.Forget(req)
		return reconcile.Result{}, nil
	}
	log := ctrl.LoggerFrom(ctx)
	switch apply.ClassOf(err) {
	case apply.Conflict:
		// The cache is behind what was written; its next event corrects that. This
		// is no error, and the queue's own retry would log it as one.
		log.V(1).Info("an object was written meanwhile, retrying", "error", err)
		return reconcile.Result{RequeueAfter: b.conflicts.When(req)}, nil
	case apply.NamespaceMissing:
		log.V(1).Info("the namespace is missing or terminating, nothing written", "error", err)
		return reconcile.Result{RequeueAfter: b.Retry}, nil
	case apply.Refused:
		if b.refusals.NumRequeues(req) == 0 {
			log.Error(err, "the API server refuses a write")
		}
		return reconcile.Result{RequeueAfter: b.refusals.When(req)}, nil
	}
	if ctx.Err() != nil { // shutting down, which is no failure of this key
		return reconcile.Result{}, nil //nolint:nilerr // see above
	}
	return reconcile.Result{}, err
}

// settled ends the wait for the changes that made req dirty. How long they waited counts if
// they made anything be written.
func (b *base) settled(side string, queue *notify.Queue, req reconcile.Request, wrote bool) {
	if seen := queue.Settle(req); wrote && !seen.IsZero() {
		b.changeSeconds.WithLabelValues(side).Observe(time.Since(seen).Seconds())
	}
}
