// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/loop/internal/memory"
	"github.com/comity-mcs/comity/sync/loop/internal/wake"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// namespacer publishes which user namespaces exist here, and their identity labels.
type namespacer struct{ *base }

func setupNamespaces(mgr ctrl.Manager, b *base) error {
	n := &namespacer{b}
	byName := mapped(func(_ context.Context, o client.Object) []types.NamespacedName {
		return []types.NamespacedName{{Name: o.GetName()}}
	})
	all := &wake.Keys{Wakes: []<-chan struct{}{b.exchanges.Listen(), b.pass.Restarted()}, List: n.restart}
	return ctrl.NewControllerManagedBy(mgr).Named("namespace-records").
		Watches(&corev1.Namespace{}, byName).
		WatchesRawSource(watchExchange(b, &exchangev1alpha1.NamespaceRecord{}, byName, b.inSharedExchange())).
		WatchesRawSource(all).
		WithOptions(b.controllerOptions()).
		Complete(n)
}

func (b *base) inSharedExchange() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetNamespace() == model.ExchangeNamespace(b.Self)
	})
}

// restart lists all namespaces and makes each count for the first pass.
func (n *namespacer) restart(ctx context.Context) ([]types.NamespacedName, error) {
	var list corev1.NamespaceList
	if err := n.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var keys []types.NamespacedName
	for i := range list.Items {
		keys = append(keys, types.NamespacedName{Name: list.Items[i].Name})
	}
	n.pass.Seed(memory.Namespaces, keys)
	return keys, nil
}

// Reconcile brings the record of one namespace up to date.
func (n *namespacer) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	shared := model.ExchangeNamespace(n.Self)
	if may, err := n.mayPublish(ctx); err != nil || !may {
		// What changes that starts everything anew.
		return reconcile.Result{}, err
	}
	key := types.NamespacedName{Name: req.Name}
	namespace, err := get[corev1.Namespace](ctx, n.client, key)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read Namespace %s: %w", req.Name, err)
	}
	desired := map[string]map[string]string{}
	if namespace != nil && !terminating(namespace) && n.isUserNamespace(namespace) {
		desired[req.Name] = n.identity(namespace)
	}
	record, err := get[exchangev1alpha1.NamespaceRecord](ctx, n.Exchange.Client, types.NamespacedName{Namespace: shared, Name: req.Name})
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read NamespaceRecord %s/%s: %w", shared, req.Name, err)
	}
	var current []*exchangev1alpha1.NamespaceRecord
	if record != nil {
		current = append(current, record)
	}
	_, err = n.publishing.Apply(ctx, plan.Namespaces(shared, desired, current))
	n.pass.Attempted(memory.Namespaces, key, err == nil)
	if err != nil {
		return n.retry(ctx, req, err)
	}
	n.settled(req)
	return reconcile.Result{}, nil
}

// identity is the only part of a namespace's labels that others may know.
func (b *base) identity(namespace *corev1.Namespace) map[string]string {
	out := map[string]string{}
	for _, label := range b.IdentityLabels {
		if value, has := namespace.Labels[label]; has {
			out[label] = value
		}
	}
	return out
}

// memberRecordController writes the MemberRecord, which tells readers that an absent record now
// means a withdrawn export and no longer one that is still to come.
type memberRecordController struct {
	*base
	told string // what was last told of another cluster with this one's id
}

func setupMember(mgr ctrl.Manager, b *base) error {
	h := &memberRecordController{base: b}
	only := b.member()
	toOnly := mapped(func(context.Context, client.Object) []types.NamespacedName { return []types.NamespacedName{only} })
	done := &wake.Keys{Wakes: []<-chan struct{}{b.pass.Completed(), b.localClusters.Listen()}, List: func(context.Context) ([]types.NamespacedName, error) {
		return []types.NamespacedName{only}, nil
	}}
	sharedExchange := builder.WithPredicates(notInitial, predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return e.Object.GetName() == only.Namespace },
		UpdateFunc:  func(e event.UpdateEvent) bool { return e.ObjectNew.GetName() == only.Namespace && relabelled(e) },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	})
	// A new exchange namespace is empty: all must be published before it says so.
	anew := mapped(func(context.Context, client.Object) []types.NamespacedName {
		b.pass.Restart()
		return nil
	})
	controller := ctrl.NewControllerManagedBy(mgr).Named("member-record")
	if !b.hub { // else a namespace of that name here is none of the exchange
		controller = controller.Watches(&corev1.Namespace{}, anew, sharedExchange)
	}
	return controller.
		WatchesRawSource(watchExchange(b, &exchangev1alpha1.MemberRecord{}, toOnly, b.inSharedExchange())).
		WatchesRawSource(done).
		WithOptions(b.controllerOptions()).
		Complete(h)
}

func relabelled(e event.UpdateEvent) bool {
	return e.ObjectOld.GetLabels()[model.LabelExchangeFrom] != e.ObjectNew.GetLabels()[model.LabelExchangeFrom]
}

// Reconcile brings the MemberRecord up to date once the first pass is complete.
func (h *memberRecordController) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := h.watchOver(ctx); err != nil {
		return reconcile.Result{}, fmt.Errorf("read MemberRecord %s: %w", req, err)
	}
	if may, err := h.mayPublish(ctx); !h.pass.IsComplete() || !may || err != nil {
		return reconcile.Result{}, err
	}
	record, err := h.readMember(ctx)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read MemberRecord %s: %w", req, err)
	}
	uid, err := h.clusterUID(ctx)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read Namespace %s: %w", metav1.NamespaceSystem, err)
	}
	desired := h.describe(uid, record)
	if _, err = h.publishing.Apply(ctx, plan.Member(req.Namespace, desired, record)); err != nil {
		return h.retry(ctx, req, err)
	}
	h.settled(req)
	return reconcile.Result{}, nil
}

// maxCIDRs is how many ranges of a kind a MemberRecord may hold.
const maxCIDRs = 64

// describe is what this cluster says of itself. What it does not know yet stays
// as the record has it, lest every restart take it back for a moment.
func (h *memberRecordController) describe(uid types.UID, record *exchangev1alpha1.MemberRecord) exchangev1alpha1.MemberRecordSpec {
	spec := exchangev1alpha1.MemberRecordSpec{ClusterID: string(h.Self), ClusterSet: h.ClusterSet, Version: h.Version, ClusterUID: uid}
	home := h.localCluster()
	spec.PodCIDRs, spec.ServiceCIDRs = texts(home.PodCIDRs), texts(home.ServiceCIDRs)
	if record != nil && len(spec.PodCIDRs)+len(spec.ServiceCIDRs) == 0 {
		spec.PodCIDRs, spec.ServiceCIDRs = record.Spec.PodCIDRs, record.Spec.ServiceCIDRs
	}
	return spec
}

// texts are the first of the prefixes, as text.
func texts(prefixes []netip.Prefix) []string {
	var out []string
	for _, p := range prefixes[:min(len(prefixes), maxCIDRs)] {
		out = append(out, p.String())
	}
	return out
}

// reasonDuplicate is that of the event on Comity's Namespace.
const reasonDuplicate = "DuplicateClusterID"

// watchOver tells once that another cluster has this one's id, and starts
// everything anew when that is over.
func (h *memberRecordController) watchOver(ctx context.Context) error {
	problem, err := h.duplicate(ctx)
	if err != nil || problem == h.told {
		return err
	}
	h.told = problem
	if problem == "" {
		ctrl.LoggerFrom(ctx).Info("this cluster's id is its own again")
		h.pass.Restart()
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("nothing is published", "reason", reasonDuplicate, "message", problem)
	own, err := get[corev1.Namespace](ctx, h.client, types.NamespacedName{Name: h.Namespace})
	if err == nil && own != nil {
		h.Recorder.Eventf(own, nil, corev1.EventTypeWarning, reasonDuplicate, "Publish", "%s", model.Bound(problem, 1000))
	}
	return err
}
