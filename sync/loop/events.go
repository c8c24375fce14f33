// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func request(key types.NamespacedName) reconcile.Request {
	return reconcile.Request{NamespacedName: key}
}

// broadcast hands one channel of events to several listeners, none of which can
// hold up another or the sender.
type broadcast struct {
	source <-chan event.GenericEvent

	mu        sync.Mutex
	listeners []chan struct{}
}

func (b *broadcast) listen() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	wake := make(chan struct{}, 1)
	b.listeners = append(b.listeners, wake)
	return wake
}

// NeedLeaderElection is false: whoever sends must not wait for us to lead.
func (b *broadcast) NeedLeaderElection() bool { return false }

// Start passes events on until ctx ends or the source closes.
func (b *broadcast) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, open := <-b.source: // a nil source never delivers
			if !open {
				<-ctx.Done()
				return nil
			}
		}
		b.mu.Lock()
		for _, wake := range b.listeners {
			kick(wake)
		}
		b.mu.Unlock()
	}
}

func kick(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default: // a kick is pending already
	}
}

// waking is a source that enqueues what list gives, at start and whenever one of
// the channels delivers. It is how an event that concerns all keys is told
// without making its sender wait. What is ready, each unless nil, is waited for first.
type waking struct {
	ready []<-chan struct{}
	wakes []<-chan struct{}
	list  func(context.Context) ([]types.NamespacedName, error)
	// before runs once, ahead of the first listing.
	before func(context.Context, queue)
}

var _ source.SyncingSource = (*waking)(nil)

// WaitForSync lets no worker start before the source is ready.
func (w *waking) WaitForSync(ctx context.Context) error {
	for _, ready := range w.ready {
		if ready == nil {
			continue
		}
		select {
		case <-ready:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Start does not block.
func (w *waking) Start(ctx context.Context, q queue) error {
	if w.before != nil {
		w.before(ctx, q)
	}
	for _, wake := range append(w.wakes, once()) {
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-wake:
				}
				keys, err := w.list(ctx)
				if err != nil {
					if ctx.Err() == nil { // a cache answers or is stopping
						ctrl.LoggerFrom(ctx).Error(err, "cannot list keys")
					}
					return
				}
				for _, key := range keys {
					q.Add(request(key))
				}
			}
		}()
	}
	return nil
}

func once() <-chan struct{} {
	wake := make(chan struct{}, 1)
	wake <- struct{}{}
	return wake
}

// exports lists the keys of all ServiceExports, or of those of one namespace.
func (b *base) exports(ctx context.Context, opts ...client.ListOption) ([]types.NamespacedName, error) {
	var list mcsv1beta1.ServiceExportList
	if err := b.client.List(ctx, &list, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, err
	}
	out := make([]types.NamespacedName, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, client.ObjectKeyFromObject(&list.Items[i]))
	}
	return out, nil
}

func (b *base) isExported(ctx context.Context, key types.NamespacedName) bool {
	return b.client.Get(ctx, key, &mcsv1beta1.ServiceExport{}) == nil
}

// mapped makes a handler of a function that names keys.
func mapped(keys func(context.Context, client.Object) []types.NamespacedName) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		found := keys(ctx, o)
		out := make([]reconcile.Request, len(found))
		for i, key := range found {
			out[i] = request(key)
		}
		return out
	})
}

// exportedService names the export that a Service belongs to, if it is exported.
func (b *base) exportedService(ctx context.Context, o client.Object) []types.NamespacedName {
	if key := client.ObjectKeyFromObject(o); b.isExported(ctx, key) {
		return []types.NamespacedName{key}
	}
	return nil
}

// exportedSlice names the export that a slice belongs to, if it is exported.
func (b *base) exportedSlice(ctx context.Context, o client.Object) []types.NamespacedName {
	key := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetLabels()[discoveryv1.LabelServiceName]}
	if key.Name != "" && b.isExported(ctx, key) {
		return []types.NamespacedName{key}
	}
	return nil
}

// exchangeObject names the export that a record or a slice copy is of.
func exchangeObject(_ context.Context, o client.Object) []types.NamespacedName {
	if record, ok := o.(*exchangev1alpha1.ExportRecord); ok {
		if name, namespace, found := strings.Cut(record.Name, "."); found {
			return []types.NamespacedName{{Namespace: namespace, Name: name}}
		}
		return nil
	}
	if key, ok := exportOfSlice(o); ok {
		return []types.NamespacedName{key}
	}
	return nil
}

// importedObject names the import that a derived object is of; and, for a
// Service that has or had a derived name without being one, the imports that
// would like to have that name.
func (b *base) importedObject(ctx context.Context, o client.Object) []types.NamespacedName {
	if name := o.GetLabels()[model.LabelServiceName]; name != "" {
		return []types.NamespacedName{{Namespace: o.GetNamespace(), Name: name}}
	}
	if _, isService := o.(*corev1.Service); !isService || !strings.HasPrefix(o.GetName(), "derived-") {
		return nil
	}
	plain := strings.Join(strings.SplitN(o.GetName(), "-", 3)[:2], "-")
	var list mcsv1beta1.ServiceImportList
	if err := b.client.List(ctx, &list, client.InNamespace(o.GetNamespace()), client.MatchingFields{indexDerived: plain}); err != nil {
		return nil
	}
	var out []types.NamespacedName
	for i := range list.Items {
		out = append(out, client.ObjectKeyFromObject(&list.Items[i]))
	}
	return out
}

// namespaceLifecycle lets pass what decides whether a namespace can be written to.
var namespaceLifecycle = predicate.Funcs{
	// What exists at start is enqueued by other means.
	CreateFunc:  func(e event.CreateEvent) bool { return !e.IsInInitialList },
	UpdateFunc:  func(e event.UpdateEvent) bool { return terminating(e.ObjectOld) != terminating(e.ObjectNew) },
	DeleteFunc:  func(event.DeleteEvent) bool { return true },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// notInitial skips what exists at start, which is enqueued by other means.
var notInitial = predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList }}

func terminating(o client.Object) bool { return o.GetDeletionTimestamp() != nil }
