// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/comity-mcs/comity/sync/decide"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
	"github.com/comity-mcs/comity/sync/plan"
)

// memberRecordController writes the MemberRecord, by which readers know that an
// absent record is a withdrawn export and not one that is still to be published.
type memberRecordController struct {
	*base
	reported string // the problem of a duplicate id that was reported last
}

func setupMemberRecord(mgr ctrl.Manager, b *base) error {
	m := &memberRecordController{base: b}
	only := []types.NamespacedName{b.member()}
	toOnly := mapped(func(context.Context, client.Object) []types.NamespacedName { return only })
	complete := &notify.Source{
		Notifiers: []*notify.Notifier{&b.passComplete, b.LocalClusterChanged, &b.claimChanged},
		List:      func(context.Context) ([]types.NamespacedName, error) { return only, nil },
		Subscribe: func(changed func(notify.Change)) func() {
			return b.Peers.Subscribe(func(c model.MemberChange) {
				if c.ID == b.Self {
					changed(notify.Change{})
				}
			})
		},
	}
	controller := ctrl.NewControllerManagedBy(mgr).Named("member-record")
	if !b.hub { // there, a namespace of that name in this cluster is no exchange namespace
		recreated := mapped(func(context.Context, client.Object) []types.NamespacedName {
			b.restartPass()
			return nil
		})
		controller = controller.Watches(&corev1.Namespace{}, recreated, builder.WithPredicates(notify.NotInitial, isRecreated(only[0].Namespace)))
	}
	return controller.
		WatchesRawSource(b.Exchange.Watch(&exchangev1alpha1.MemberRecord{}, toOnly, b.inSharedExchange())).
		WatchesRawSource(complete).
		WithOptions(b.controllerOptions()).
		Complete(m)
}

// isRecreated passes events after which the exchange namespace called name may be
// another one, which is empty.
func isRecreated(name string) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return e.Object.GetName() == name },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectNew.GetName() == name && differs(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels(), model.LabelExchangeFrom)
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// Reconcile brings the MemberRecord up to date once the first pass is complete.
func (m *memberRecordController) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := m.reportDuplicate(ctx); err != nil {
		return reconcile.Result{}, err
	}
	if may, err := m.mayPublish(ctx); !m.pass.IsComplete() || !may || err != nil {
		return reconcile.Result{}, err
	}
	record, err := m.readMember(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	known := exchangev1alpha1.MemberRecordSpec{ClusterID: string(m.Self), ClusterSet: m.ClusterSet, Version: m.Version, ClusterUID: m.ClusterUID}
	desired := decide.Member(known, m.LocalCluster(), record)
	if _, err = m.publishing.Apply(ctx, plan.Member(req.Namespace, desired, record, m.holdsPlace())); err != nil {
		return m.retry(ctx, req, err)
	}
	m.succeeded(req)
	return reconcile.Result{}, nil
}

// reasonDuplicate is that of the event on Comity's Namespace.
const reasonDuplicate = "DuplicateClusterID"

// reportDuplicate reports once that another cluster has this one's id, and
// publishes everything again when that is over.
func (m *memberRecordController) reportDuplicate(ctx context.Context) error {
	problem, err := m.duplicate(ctx)
	if err != nil || problem == m.reported || m.claim.heldBy() == "" && problem == m.placeProblem() {
		return err
	}
	m.reported = problem
	if problem == "" {
		ctrl.LoggerFrom(ctx).Info("no other cluster has this cluster's id any more, publishing again")
		m.restartPass()
		return nil
	}
	ctrl.LoggerFrom(ctx).Error(errors.New(problem), "nothing is published", "reason", reasonDuplicate)
	own, err := getNamespace(ctx, m.client, m.Namespace)
	if err == nil && own != nil {
		m.recorder.Eventf(own, nil, corev1.EventTypeWarning, reasonDuplicate, "Publish", "%s", model.Bound(problem, model.MaxEventNote))
	}
	return err
}

// namespaceRecordController publishes which user namespaces exist here, of those that
// the administrator selects, and their identity labels.
type namespaceRecordController struct{ *base }

func setupNamespaceRecords(mgr ctrl.Manager, b *base) error {
	n := &namespaceRecordController{b}
	byName := func(_ context.Context, o client.Object) []types.NamespacedName {
		return []types.NamespacedName{{Name: o.GetName()}}
	}
	all := &notify.Source{Notifiers: []*notify.Notifier{&b.passChanged}, List: n.seed}
	return ctrl.NewControllerManagedBy(mgr).Named("namespace-records").
		Watches(&corev1.Namespace{}, mapped(byName)).
		WatchesRawSource(b.Exchange.Watch(&exchangev1alpha1.NamespaceRecord{}, derived(byName), b.inSharedExchange())).
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
	shared := model.ExchangeNamespace(n.Self)
	if may, err := n.mayPublish(ctx); err != nil || !may {
		// The change that ends this lists all namespaces again.
		return reconcile.Result{}, err
	}
	namespace, err := getNamespace(ctx, n.client, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	record, err := get[exchangev1alpha1.NamespaceRecord](ctx, n.Exchange.Client, types.NamespacedName{Namespace: shared, Name: req.Name})
	if err != nil {
		return reconcile.Result{}, err
	}
	desired := decide.NamespaceRecord(req.Name, namespace, n.Namespace, n.IdentityLabels, n.PublishNamespaces)
	_, err = n.publishing.Apply(ctx, plan.Namespace(shared, req.Name, desired, record, n.holdsPlace()))
	if n.pass.Attempted(decide.Namespaces, req.NamespacedName, err == nil) {
		n.passComplete.All()
	}
	if err != nil {
		return n.retry(ctx, req, err)
	}
	n.succeeded(req)
	return reconcile.Result{}, nil
}
