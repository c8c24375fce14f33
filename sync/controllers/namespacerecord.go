// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/comity-mcs/comity/sync/decide"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
	"github.com/comity-mcs/comity/sync/plan"
)

// namespaceRecordController publishes which user namespaces exist here, of those that
// the administrator selects, and their identity labels.
type namespaceRecordController struct{ *base }

func setupNamespaceRecords(mgr ctrl.Manager, b *base) error {
	n := &namespaceRecordController{b}
	byName := mapped(func(_ context.Context, o client.Object) []types.NamespacedName {
		return []types.NamespacedName{{Name: o.GetName()}}
	})
	all := &notify.Source{Notifiers: []*notify.Notifier{&b.passChanged}, List: n.seed}
	return ctrl.NewControllerManagedBy(mgr).Named("namespace-records").
		Watches(&corev1.Namespace{}, byName).
		WatchesRawSource(b.Exchange.Watch(&exchangev1alpha1.NamespaceRecord{}, byName, b.inSharedExchange())).
		WatchesRawSource(all).
		WithOptions(b.controllerOptions()).
		Complete(n)
}

func (b *base) inSharedExchange() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetNamespace() == model.ExchangeNamespace(b.Self)
	})
}

// seed lists all namespaces, which the first pass then waits for.
func (n *namespaceRecordController) seed(ctx context.Context) ([]types.NamespacedName, error) {
	keys, err := notify.ListKeys(ctx, n.client, &corev1.NamespaceList{})
	if err == nil && n.pass.Seed(decide.Namespaces, keys) {
		n.passComplete.All()
	}
	return keys, err
}

// Reconcile brings the record of one namespace up to date.
func (n *namespaceRecordController) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	shared, key := model.ExchangeNamespace(n.Self), types.NamespacedName{Name: req.Name}
	if may, err := n.mayPublish(ctx); err != nil || !may {
		// The change that ends this lists all namespaces again.
		return reconcile.Result{}, err
	}
	namespace, err := get[corev1.Namespace](ctx, n.client, key)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read Namespace %s: %w", req.Name, err)
	}
	record, err := get[exchangev1alpha1.NamespaceRecord](ctx, n.Exchange.Client, types.NamespacedName{Namespace: shared, Name: req.Name})
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read NamespaceRecord %s/%s: %w", shared, req.Name, err)
	}
	desired := decide.NamespaceRecord(req.Name, namespace, n.Namespace, n.IdentityLabels, n.PublishNamespaces)
	_, err = n.publishing.Apply(ctx, plan.Namespace(shared, req.Name, desired, record, n.claim.isHeldBy(n.ClusterUID)))
	if n.pass.Attempted(decide.Namespaces, key, err == nil) {
		n.passComplete.All()
	}
	if err != nil {
		return n.retry(ctx, req, err)
	}
	n.succeeded(req)
	return reconcile.Result{}, nil
}
