// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
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
	all := &waking{wakes: []<-chan struct{}{b.pass.restarted()}, list: n.restart}
	return ctrl.NewControllerManagedBy(mgr).Named("namespace-records").
		Watches(&corev1.Namespace{}, byName).
		Watches(&exchangev1alpha1.NamespaceRecord{}, byName, b.inSharedExchange()).
		WatchesRawSource(all).
		WithOptions(b.controllerOptions()).
		Complete(n)
}

func (b *base) inSharedExchange() builder.Predicates {
	return builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetNamespace() == model.ExchangeNamespace(b.Self)
	}))
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
	n.pass.seed(passNamespaces, keys)
	return keys, nil
}

// Reconcile brings the record of one namespace up to date.
func (n *namespacer) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	shared := model.ExchangeNamespace(n.Self)
	if n.exchangeProblem(ctx, shared) != "" {
		// Its creation starts everything anew.
		return reconcile.Result{}, nil
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
	record, err := get[exchangev1alpha1.NamespaceRecord](ctx, n.client, types.NamespacedName{Namespace: shared, Name: req.Name})
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read NamespaceRecord %s/%s: %w", shared, req.Name, err)
	}
	var current []*exchangev1alpha1.NamespaceRecord
	if record != nil {
		current = append(current, record)
	}
	_, err = n.applier.Apply(ctx, plan.Namespaces(shared, desired, current))
	n.pass.attempted(passNamespaces, key, err == nil)
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

// herald writes the MemberRecord, which tells readers that an absent record now
// means a withdrawn export and no longer one that is still to come.
type herald struct{ *base }

func setupMember(mgr ctrl.Manager, b *base) error {
	h := &herald{b}
	only := types.NamespacedName{Namespace: model.ExchangeNamespace(b.Self), Name: string(b.Self)}
	toOnly := mapped(func(context.Context, client.Object) []types.NamespacedName { return []types.NamespacedName{only} })
	done := &waking{wakes: []<-chan struct{}{b.pass.completed()}, list: func(context.Context) ([]types.NamespacedName, error) {
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
		b.pass.restart()
		return nil
	})
	return ctrl.NewControllerManagedBy(mgr).Named("member-record").
		Watches(&exchangev1alpha1.MemberRecord{}, toOnly, b.inSharedExchange()).
		Watches(&corev1.Namespace{}, anew, sharedExchange).
		WatchesRawSource(done).
		WithOptions(b.controllerOptions()).
		Complete(h)
}

func relabelled(e event.UpdateEvent) bool {
	return e.ObjectOld.GetLabels()[model.LabelExchangeFrom] != e.ObjectNew.GetLabels()[model.LabelExchangeFrom]
}

// Reconcile brings the MemberRecord up to date once the first pass is complete.
func (h *herald) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !h.pass.isComplete() || h.exchangeProblem(ctx, req.Namespace) != "" {
		return reconcile.Result{}, nil
	}
	record, err := get[exchangev1alpha1.MemberRecord](ctx, h.client, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read MemberRecord %s: %w", req, err)
	}
	desired := exchangev1alpha1.MemberRecordSpec{ClusterID: string(h.Self), ClusterSet: h.ClusterSet, Version: h.Version}
	if _, err = h.applier.Apply(ctx, plan.Member(req.Namespace, desired, record)); err != nil {
		return h.retry(ctx, req, err)
	}
	h.settled(req)
	return reconcile.Result{}, nil
}

// Parts of the first pass.
const (
	passExports    = "exports"
	passNamespaces = "namespaces"
)

// maxAttempts is how often an export is tried before the first pass goes on
// without it. An export that fails so often was never published, so no reader
// can take its absence for a withdrawal; and it must not hold up the others.
const maxAttempts = 3

// firstPass knows whether everything that this cluster shares was published
// once since start, or since its exchange namespace came into being.
type firstPass struct {
	mu       sync.Mutex
	pending  map[string]map[types.NamespacedName]int // part → key → attempts
	complete bool
	done     chan struct{}
	restarts []chan struct{}
}

func newFirstPass() *firstPass {
	return &firstPass{pending: map[string]map[types.NamespacedName]int{}, done: make(chan struct{}, 1)}
}

// completed delivers when the pass becomes complete.
func (f *firstPass) completed() <-chan struct{} { return f.done }

// restarted delivers when a part must be listed and seeded again.
func (f *firstPass) restarted() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	wake := make(chan struct{}, 1)
	f.restarts = append(f.restarts, wake)
	return wake
}

func (f *firstPass) restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.complete = false
	clear(f.pending)
	for _, wake := range f.restarts {
		kick(wake)
	}
}

// seed names what a part consists of; the keys must be enqueued after it. Once
// a pass is complete it stays so until restart.
func (f *firstPass) seed(part string, keys []types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.complete {
		return
	}
	f.pending[part] = make(map[types.NamespacedName]int, len(keys))
	for _, key := range keys {
		f.pending[part][key] = 0
	}
	f.check()
}

// attempted counts one attempt at key.
func (f *firstPass) attempted(part string, key types.NamespacedName, succeeded bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	attempts, waiting := f.pending[part][key]
	if !waiting {
		return
	}
	if attempts+1 < maxAttempts && !succeeded {
		f.pending[part][key]++
		return
	}
	delete(f.pending[part], key)
	f.check()
}

func (f *firstPass) check() {
	exports, haveExports := f.pending[passExports]
	namespaces, haveNamespaces := f.pending[passNamespaces]
	if !f.complete && haveExports && haveNamespaces && len(exports)+len(namespaces) == 0 {
		f.complete = true
		kick(f.done)
	}
}

func (f *firstPass) isComplete() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.complete
}
