// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/comity-mcs/comity/sync/apply"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// neverTimeout lets the controller wait for the cache of a hub as long as it
// takes; ending the process would end the imports with it.
const neverTimeout = 10 * 365 * 24 * time.Hour

func setupRecords(mgr ctrl.Manager, opts Options) error {
	r := &recorder{
		Options: opts, local: mgr.GetClient(), applier: apply.New(opts.Exchange.Client, opts.Registry),
		retries: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		wrote:   map[types.NamespacedName]time.Time{},
	}
	name := func(o client.Object) []string { return []string{o.GetName()} }
	if err := opts.Exchange.Cache.IndexField(context.Background(), &exchangev1alpha1.ImportRecord{}, indexName, name); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("import-records").
		Watches(&corev1.Namespace{}, mapped(r.inNamespace), builder.WithPredicates(lifecycle)).
		WatchesRawSource(source.Kind(opts.Exchange.Cache, client.Object(&exchangev1alpha1.ImportRecord{}), mapped(keysOf))).
		WatchesRawSource(&triggers{recorder: r}).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			CacheSyncTimeout:        neverTimeout,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		Complete(r)
}

func mapped(keys func(context.Context, client.Object) []types.NamespacedName) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		found := keys(ctx, o)
		out := make([]reconcile.Request, len(found))
		for i, key := range found {
			out[i] = reconcile.Request{NamespacedName: key}
		}
		return out
	})
}

// lifecycle lets pass what decides whether there is a namespace to import into,
// or to report in. What exists at start is listed by triggers.
var lifecycle = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, now := e.ObjectOld, e.ObjectNew
		return (before.GetDeletionTimestamp() == nil) != (now.GetDeletionTimestamp() == nil) ||
			before.GetLabels()[model.LabelExchangeFrom] != now.GetLabels()[model.LabelExchangeFrom]
	},
}

// inNamespace lists the keys about which something else may be said now.
func (r *recorder) inNamespace(_ context.Context, o client.Object) []types.NamespacedName {
	all := r.Peers.Keys()
	if o.GetLabels()[model.LabelExchangeFrom] == string(r.Self) {
		return all
	}
	var out []types.NamespacedName
	for _, key := range all {
		if key.Namespace == o.GetName() {
			out = append(out, key)
		}
	}
	return out
}

// triggers are the events that come from within the process. None makes its
// sender wait.
type triggers struct{ *recorder }

var _ source.SyncingSource = (*triggers)(nil)

// WaitForSync lets nothing be said, and above all nothing be taken back, before
// it is known which peers there are.
func (t *triggers) WaitForSync(ctx context.Context) error {
	select {
	case <-t.Peers.Listed():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Start does not block.
func (t *triggers) Start(ctx context.Context, q queue) error {
	everything := make(chan struct{}, 1)
	kick := func(model.ClusterID) {
		select {
		case everything <- struct{}{}:
		default: // a kick is pending already
		}
	}
	cancel := t.Peers.Subscribe(func(key types.NamespacedName) { q.Add(reconcile.Request{NamespacedName: key}) }, kick)
	context.AfterFunc(ctx, cancel)
	kick("")
	go func() {
		observed := t.Observed
		for {
			select {
			case <-ctx.Done():
				return
			case <-everything:
				t.enqueueAll(ctx, q)
			case <-t.Exchange.Changed: // what could not be said before may be now
				t.enqueueAll(ctx, q)
			case e, open := <-observed: // a nil channel never delivers
				if !open {
					observed = nil
					continue
				}
				q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)})
			}
		}
	}()
	return nil
}

// enqueueAll enqueues what peers export, and what was said of what they do not.
func (t *triggers) enqueueAll(ctx context.Context, q queue) {
	keys := t.Peers.Keys()
	var records exchangev1alpha1.ImportRecordList
	// The cache of a hub answers as soon as it can; what it held is enqueued by
	// its own events if it does not.
	if err := t.Exchange.Client.List(ctx, &records, client.UnsafeDisableDeepCopy); err == nil {
		for i := range records.Items {
			keys = append(keys, keysOf(ctx, &records.Items[i])...)
		}
	}
	for _, key := range keys {
		q.Add(reconcile.Request{NamespacedName: key})
	}
}
