// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/comity-mcs/comity/sync/notify"
)

// namespaceCaches read a set of namespaces that may change at any time. A cache of
// controller-runtime takes its namespaces only when it is created, so each namespace
// has one, and every index and watch is added to each of them.
type namespaceCaches struct {
	// make gives the cache of one namespace, not started yet.
	make func(namespace string) (cache.Cache, error)
	// ready is closed once the first namespaces were read.
	ready chan struct{}

	mu      sync.RWMutex
	all     map[string]*namespaceCache
	setups  []func(*namespaceCache) error // of each cache: its indexes and watches
	running sync.WaitGroup
}

// namespaceCache is that of one namespace. Until it is synced, nothing is read from it.
type namespaceCache struct {
	cache.Cache
	namespace string
	uid       types.UID
	ctx       context.Context // ends when the namespace is removed
	cancel    context.CancelFunc
	synced    atomic.Bool
}

// add starts to watch a namespace unless it is watched; synced is called once
// all of it was read. A namespace of the same name with another UID is read again.
func (s *namespaceCaches) add(ctx context.Context, namespace string, uid types.UID, synced func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.all[namespace]; old != nil && old.uid == uid {
		return nil
	}
	s.drop(namespace)
	one, err := s.make(namespace)
	if err != nil {
		return fmt.Errorf("watch namespace %s: %w", namespace, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	added := &namespaceCache{Cache: one, namespace: namespace, uid: uid, ctx: ctx, cancel: cancel}
	for _, setup := range s.setups {
		if err := setup(added); err != nil {
			cancel()
			return fmt.Errorf("watch namespace %s: %w", namespace, err)
		}
	}
	s.all[namespace] = added
	s.running.Go(func() { _ = one.Start(ctx) }) // ends without an error when ctx does
	s.running.Go(func() {
		if one.WaitForCacheSync(ctx) {
			added.synced.Store(true)
			synced()
		}
	})
	return nil
}

// remove forgets a namespace and all that was read there; it reports whether it
// was watched. Handlers get no event for each object.
func (s *namespaceCaches) remove(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drop(namespace)
}

func (s *namespaceCaches) drop(namespace string) bool {
	gone := s.all[namespace]
	if gone == nil {
		return false
	}
	delete(s.all, namespace)
	gone.cancel()
	return true
}

// watched are the caches by namespace, those that are not synced yet included.
func (s *namespaceCaches) watched() map[string]*namespaceCache {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.Clone(s.all)
}

// isSynced reports whether all of a namespace was read.
func (s *namespaceCaches) isSynced(namespace string, uid types.UID) bool {
	one := s.watched()[namespace]
	return one != nil && one.uid == uid && one.synced.Load()
}

// Get implements client.Reader. Nothing is found in a namespace that is not
// watched, or not yet.
func (s *namespaceCaches) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	one := s.watched()[key.Namespace]
	if one == nil || !one.synced.Load() {
		return apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", object)}, key.String())
	}
	return one.Get(ctx, key, object, opts...)
}

// List implements client.Reader; without a namespace, it lists all that are watched.
func (s *namespaceCaches) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	options := client.ListOptions{}
	options.ApplyOptions(opts)
	from := s.watched()
	var items []runtime.Object
	for _, namespace := range slices.Sorted(maps.Keys(from)) {
		if !from[namespace].synced.Load() || options.Namespace != "" && options.Namespace != namespace {
			continue
		}
		part := list.DeepCopyObject().(client.ObjectList)
		if err := from[namespace].List(ctx, part, &options); err != nil {
			return err
		}
		found, err := apimeta.ExtractList(part)
		if err != nil {
			return err
		}
		items = append(items, found...)
	}
	return apimeta.SetList(list, items)
}

// setUp has setup called for each namespace, those that are watched already included.
func (s *namespaceCaches) setUp(setup func(*namespaceCache) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		if err := setup(one); err != nil {
			return err
		}
	}
	s.setups = append(s.setups, setup)
	return nil
}

// IndexField implements client.FieldIndexer.
func (s *namespaceCaches) IndexField(_ context.Context, object client.Object, field string, extract client.IndexerFunc) error {
	return s.setUp(func(one *namespaceCache) error { return one.IndexField(one.ctx, object, field, extract) })
}

// watch is a source of the keys that events of one kind give, in every namespace.
type watch struct {
	caches *namespaceCaches
	kind   client.Object
	keys   handler.EventHandler
	only   string // the only namespace with objects of that kind; empty: all may have some
}

var _ source.SyncingSource = &watch{}

// Start implements source.Source.
func (w *watch) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	return w.caches.setUp(func(one *namespaceCache) error {
		if w.only != "" && w.only != one.namespace {
			return nil
		}
		// Before the cache starts, so that the namespace counts as read only with this kind.
		if _, err := one.GetInformer(one.ctx, w.kind, cache.BlockUntilSynced(false)); err != nil {
			return err
		}
		return source.Kind(one, w.kind, w.keys).Start(one.ctx, queue)
	})
}

// WaitForSync waits until the first namespaces were read.
func (w *watch) WaitForSync(ctx context.Context) error {
	notify.Await(ctx, w.caches.ready)
	return ctx.Err()
}
