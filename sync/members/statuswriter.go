// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
)

// Imports is what the controllers know of the imports from each cluster.
type Imports interface {
	Of(cluster model.ClusterID) model.ImportCounts
	// Listed reports whether the list of any import has the cluster, or that is not known.
	Listed(cluster model.ClusterID) bool
}

// SetupStatusWithManager makes the leader write the status of Peers, and an event for each
// problem that is new.
func (s *Set) SetupStatusWithManager(mgr ctrl.Manager, imports Imports) error {
	w := &statusWriter{set: s, client: mgr.GetClient(), imports: imports}
	return ctrl.NewControllerManagedBy(mgr).Named("peer-status").WatchesRawSource(source.Func(w.subscribe)).Complete(w)
}

// statusWriter writes the status of one Peer at a time. It reads the Peer from the cache:
// use publishes each new version of it to statuses.
type statusWriter struct {
	set     *Set
	client  client.Client
	imports Imports
}

// subscribe is a source of the Peers whose status may have to be written.
func (w *statusWriter) subscribe(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	enqueue := func(name string) { queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}) }
	context.AfterFunc(ctx, w.set.statuses.Subscribe(enqueue))
	w.set.leads.Store(true)
	for _, name := range w.set.view.Load().peers {
		enqueue(name)
	}
	return nil
}

// Reconcile implements reconcile.Reconciler.
func (w *statusWriter) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var peer exchangev1alpha1.Peer
	if err := w.client.Get(ctx, request.NamespacedName, &peer); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	wanted, known := w.wanted(&peer)
	if !known || peer.DeletionTimestamp != nil {
		return reconcile.Result{}, nil // use publishes the Peer once it is a member
	}
	if !equality.Semantic.DeepEqual(peer.Status, wanted) {
		written, err := w.write(ctx, &peer, wanted)
		if err != nil || !written {
			return reconcile.Result{}, err
		}
		for _, t := range transitions(&peer.Status, &wanted) {
			w.set.event(&peer, t)
		}
	}
	if meta.IsStatusConditionTrue(wanted.Conditions, exchangev1alpha1.PeerRemoved) {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: w.set.opts.StatusInterval}, nil
}

// wanted is the status that a Peer should have; false if that is not known yet.
func (w *statusWriter) wanted(peer *exchangev1alpha1.Peer) (exchangev1alpha1.PeerStatus, bool) {
	id, now := model.ClusterID(peer.Name), w.set.opts.Clock.Now()
	if refused := w.set.opts.misnamed(peer); refused != (remote.Failure{}) {
		return onlyConditions(peer, refused, "", now, exchangev1alpha1.PeerAccepted, exchangev1alpha1.PeerConnected), true
	}
	if peer.Spec.Removed {
		var removing remote.Failure
		if w.imports.Listed(id) {
			removing = because(ReasonRemoving, "imports still list cluster %s; they are being changed", id)
		}
		return onlyConditions(peer, removing, "nothing is imported from the cluster any more", now, exchangev1alpha1.PeerRemoved), true
	}
	o, known := w.observe(id)
	if !known {
		return exchangev1alpha1.PeerStatus{}, false
	}
	return o.status(peer, now), true
}

// write applies status to the very version of the Peer that it was computed from, and
// reports whether it was written. A Peer that changed or is gone is published again by its
// watch: a stale cache must not make the same transition twice.
func (w *statusWriter) write(ctx context.Context, peer *exchangev1alpha1.Peer, status exchangev1alpha1.PeerStatus) (bool, error) {
	u := model.StatusOf(peer, exchangev1alpha1.GroupVersion.WithKind("Peer"), &status)
	err := w.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(model.FieldOwner), client.ForceOwnership)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("apply the status of Peer %s: %w", peer.Name, err)
	}
	return true, nil
}

// event writes an event about a Peer; the API allows 1,024 bytes of message.
func (s *Set) event(peer *exchangev1alpha1.Peer, t transition) {
	kind, log := corev1.EventTypeNormal, s.opts.Log.WithValues("peer", peer.Name, "reason", t.reason)
	if t.warning {
		kind = corev1.EventTypeWarning
		log.Error(errors.New(t.message), "the status of a peer changed")
	} else {
		log.Info("the status of a peer changed", "message", t.message)
	}
	s.opts.Recorder.Eventf(peer, nil, kind, t.reason, "Read", "%s", model.Bound(t.message, model.MaxEventNote))
}
