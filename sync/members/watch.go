// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
)

// definitionInterval is how often it is checked whether Peers are defined, as long as they
// are not.
const definitionInterval = 2 * time.Second

// SetupWithManager makes mgr watch the Peers and their Secrets on every replica, as the
// webhook needs the members too. The manager's cache of Secrets should be restricted to
// Options.Namespace.
func (s *Set) SetupWithManager(mgr ctrl.Manager) error {
	peers := &peerWatch{cache: mgr.GetCache()}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("peer").
		WatchesRawSource(source.Kind(mgr.GetCache(), &corev1.Secret{}, handler.TypedEnqueueRequestsFromMapFunc(
			func(context.Context, *corev1.Secret) []reconcile.Request { return []reconcile.Request{all} }))).
		WatchesRawSource(source.Func(peers.start)).
		WithOptions(controller.Options{NeedLeaderElection: ptr.To(false), MaxConcurrentReconciles: 1}).
		Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{}, s.reconcile(ctx, mgr.GetClient(), peers)
		}))
	if err != nil {
		return fmt.Errorf("set up the peer controller: %w", err)
	}
	for _, runnable := range []manager.Runnable{&tokenRefresher{set: s, client: mgr.GetClient()}, everyReplica(s.monitorLiveness), everyReplica(s.closeConnections)} {
		if err := mgr.Add(runnable); err != nil {
			return fmt.Errorf("set up peers: %w", err)
		}
	}
	return nil
}

// everyReplica is a Runnable that runs without being elected leader: every replica reads the peers for itself.
type everyReplica func(context.Context) error

// Start implements manager.Runnable.
func (f everyReplica) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everyReplica) NeedLeaderElection() bool { return false }

// all is the only request: which Peers a Secret is that of depends on all of them.
var all reconcile.Request

// reconcile reads all Peers and Secrets. Without the definition there are no Peers.
func (s *Set) reconcile(ctx context.Context, reader client.Reader, watch *peerWatch) error {
	var peers exchangev1alpha1.PeerList
	var secrets corev1.SecretList
	switch watch.state.Load() {
	case peersUnknown:
		return nil // start enqueues a request once they are known
	case peersRead:
		if err := reader.List(ctx, &peers); err != nil {
			return fmt.Errorf("list Peers: %w", err)
		}
	}
	if err := reader.List(ctx, &secrets, client.InNamespace(s.opts.Namespace)); err != nil {
		return fmt.Errorf("list the Secrets of Peers: %w", err)
	}
	s.use(peers.Items, secrets.Items)
	select {
	case <-s.listed:
	default:
		close(s.listed)
	}
	return nil
}

// peerWatch watches the Peers from when they are defined. A controller with an ordinary
// source would end, and the process with it, if a definition is missing for two minutes.
// Once the watch has begun, a definition that is deleted only leaves no Peer: the informer
// tries to list them until it is there again.
type peerWatch struct {
	cache cache.Cache
	state atomic.Int32 // one of the constants
}

const (
	peersUnknown int32 = iota
	peersUndefined
	peersRead
)

// start is a source: it enqueues a request for each change, and does not block.
func (w *peerWatch) start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	go func() {
		log, said := ctrl.LoggerFrom(ctx), ""
		_ = wait.PollUntilContextCancel(ctx, definitionInterval, true, func(ctx context.Context) (bool, error) {
			err := w.read(ctx, queue)
			if err == nil {
				return true, nil
			}
			if err.Error() != said {
				said = err.Error()
				log.Info("the Peers cannot be watched yet, so that no other cluster is read", "reason", said)
			}
			if apimeta.IsNoMatchError(err) {
				w.state.Store(peersUndefined)
				queue.Add(all)
			}
			return false, nil
		}) // its only error is that ctx has ended
	}()
	return nil
}

// read begins to watch the Peers, and returns once they are read.
func (w *peerWatch) read(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	informer, err := w.cache.GetInformer(ctx, &exchangev1alpha1.Peer{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	enqueue := func(any) { queue.Add(all) }
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(any, any) { queue.Add(all) }, DeleteFunc: enqueue,
	})
	if err != nil {
		return err
	}
	if toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		w.state.Store(peersRead)
		queue.Add(all)
	}
	return nil
}
