// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// namespaceCaches is a cache of a set of namespaces that may change at any time.
// That of controller-runtime takes its namespaces only when it is created. Here
// each namespace has a cache of its own, and every index, informer and handler is
// added to each of them.
type namespaceCaches struct {
	scheme *runtime.Scheme
	// make gives the cache of one namespace, not started yet.
	make func(namespace string) (cache.Cache, error)
	// ready is closed once the first namespaces are known.
	ready chan struct{}

	mu        sync.RWMutex
	all       map[string]*namespaceCache
	indexes   []index
	informers map[schema.GroupVersionKind]*informer
	running   sync.WaitGroup
}

// namespaceCache is that of one namespace. Until it is synced, nothing is read from it.
type namespaceCache struct {
	uid    types.UID
	cache  cache.Cache
	ctx    context.Context // ends when the namespace is removed
	cancel context.CancelFunc
	synced bool
}

type index struct {
	object  client.Object
	field   string
	extract client.IndexerFunc
}

var _ cache.Cache = &namespaceCaches{}

func newNamespaceCaches(scheme *runtime.Scheme, newCache func(namespace string) (cache.Cache, error)) *namespaceCaches {
	return &namespaceCaches{
		scheme: scheme, make: newCache, ready: make(chan struct{}),
		all: map[string]*namespaceCache{}, informers: map[schema.GroupVersionKind]*informer{},
	}
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
	for _, i := range s.indexes {
		if err := one.IndexField(ctx, i.object, i.field, i.extract); err != nil {
			return fmt.Errorf("watch namespace %s: %w", namespace, err)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	added := &namespaceCache{uid: uid, cache: one, ctx: ctx, cancel: cancel}
	for _, i := range s.informers {
		if err := i.extend(ctx, namespace, one); err != nil {
			cancel()
			return fmt.Errorf("watch namespace %s: %w", namespace, err)
		}
	}
	s.all[namespace] = added
	s.running.Go(func() { _ = one.Start(ctx) }) // ends without an error when ctx does
	s.running.Go(func() {
		if !one.WaitForCacheSync(ctx) {
			return
		}
		s.mu.Lock()
		added.synced = true
		s.mu.Unlock()
		synced()
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
	for _, i := range s.informers {
		i.shrink(namespace)
	}
	gone.cancel() // last: no handler can be added to what has ended
	return true
}

// names are the namespaces that are watched.
func (s *namespaceCaches) names() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Sorted(maps.Keys(s.all))
}

// isSynced reports whether all of a namespace was read.
func (s *namespaceCaches) isSynced(namespace string, uid types.UID) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	one := s.all[namespace]
	return one != nil && one.uid == uid && one.synced
}

// synced are the caches to read from, by namespace.
func (s *namespaceCaches) synced() map[string]cache.Cache {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := map[string]cache.Cache{}
	for namespace, one := range s.all {
		if one.synced {
			out[namespace] = one.cache
		}
	}
	return out
}

// Get implements client.Reader. Nothing is found in a namespace that is not
// watched, or not yet.
func (s *namespaceCaches) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	one := s.synced()[key.Namespace]
	if one == nil {
		gvk, err := apiutil.GVKForObject(object, s.scheme)
		if err != nil {
			return err
		}
		return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.String())
	}
	return one.Get(ctx, key, object, opts...)
}

// List implements client.Reader; without a namespace, it lists all that are watched.
func (s *namespaceCaches) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	options := client.ListOptions{}
	options.ApplyOptions(opts)
	if options.Continue != "" || options.Limit != 0 {
		return errors.New("the cache of the exchange lists everything at once; expected neither limit nor continue")
	}
	from := s.synced()
	var items []runtime.Object
	for _, namespace := range slices.Sorted(maps.Keys(from)) {
		if options.Namespace != "" && options.Namespace != namespace {
			continue
		}
		part, ok := list.DeepCopyObject().(client.ObjectList)
		if !ok {
			return fmt.Errorf("%T is no list", list)
		}
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

// IndexField implements client.FieldIndexer.
func (s *namespaceCaches) IndexField(ctx context.Context, object client.Object, field string, extract client.IndexerFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.indexes = append(s.indexes, index{object, field, extract})
	for _, one := range s.all {
		if err := one.cache.IndexField(ctx, object, field, extract); err != nil {
			return err
		}
	}
	return nil
}

// GetInformer implements cache.Informers. It never waits.
func (s *namespaceCaches) GetInformer(ctx context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	gvk, err := apiutil.GVKForObject(object, s.scheme)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.informers[gvk]; found != nil {
		return found, nil
	}
	added := newInformer(object)
	for namespace, one := range s.all {
		if err := added.extend(ctx, namespace, one.cache); err != nil {
			return nil, err
		}
	}
	s.informers[gvk] = added
	return added, nil
}

// GetInformerForKind implements cache.Informers.
func (s *namespaceCaches) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption) (cache.Informer, error) {
	object, err := s.scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	typed, ok := object.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%s is no kind of object", gvk)
	}
	return s.GetInformer(ctx, typed, opts...)
}

// RemoveInformer implements cache.Informers; nobody asks for it.
func (s *namespaceCaches) RemoveInformer(context.Context, client.Object) error {
	return errors.New("informers of the exchange cannot be removed")
}

// Start implements cache.Informers: the namespaces start one by one, so this
// only ends with them.
func (s *namespaceCaches) Start(ctx context.Context) error {
	<-ctx.Done()
	s.running.Wait()
	return nil
}

// WaitForCacheSync waits until the namespaces that are watched now were read. A
// namespace that goes meanwhile is not waited for.
func (s *namespaceCaches) WaitForCacheSync(ctx context.Context) bool {
	select {
	case <-s.ready:
	case <-ctx.Done():
		return false
	}
	s.mu.RLock()
	waiting := slices.Collect(maps.Values(s.all))
	s.mu.RUnlock()
	for _, one := range waiting {
		limited, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(one.ctx, cancel)
		one.cache.WaitForCacheSync(limited)
		stop()
		cancel()
	}
	return ctx.Err() == nil
}
