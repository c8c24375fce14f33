// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// informer notifies of objects of one kind in all namespaces that are watched.
type informer struct {
	object client.Object

	mu            sync.Mutex
	parts         map[string]cache.Informer // by namespace
	registrations []*registration
}

var _ cache.Informer = &informer{}

func newInformer(object client.Object) *informer {
	return &informer{object: object, parts: map[string]cache.Informer{}}
}

// registration is one handler, in every namespace.
type registration struct {
	owner   *informer
	handler toolscache.ResourceEventHandler
	options toolscache.HandlerOptions
	parts   map[string]toolscache.ResourceEventHandlerRegistration
}

// extend adds a namespace. Handlers get an event for each object in it.
func (i *informer) extend(ctx context.Context, namespace string, from cache.Cache) error {
	part, err := from.GetInformer(ctx, i.object, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("informer of %T: %w", i.object, err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.parts[namespace] = part
	for _, r := range i.registrations {
		if err := r.add(namespace, part); err != nil {
			return err
		}
	}
	return nil
}

// shrink forgets a namespace, whose informer ends by itself.
func (i *informer) shrink(namespace string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.parts, namespace)
	for _, r := range i.registrations {
		delete(r.parts, namespace)
	}
}

func (r *registration) add(namespace string, part cache.Informer) error {
	registered, err := part.AddEventHandlerWithOptions(r.handler, r.options)
	if err != nil {
		return fmt.Errorf("watch %T in namespace %s: %w", r.owner.object, namespace, err)
	}
	r.parts[namespace] = registered
	return nil
}

// AddEventHandler implements cache.Informer.
func (i *informer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(handler, toolscache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements cache.Informer.
func (i *informer) AddEventHandlerWithResyncPeriod(handler toolscache.ResourceEventHandler, resync time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(handler, toolscache.HandlerOptions{ResyncPeriod: &resync})
}

// AddEventHandlerWithOptions implements cache.Informer.
func (i *informer) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	r := &registration{owner: i, handler: handler, options: options, parts: map[string]toolscache.ResourceEventHandlerRegistration{}}
	for namespace, part := range i.parts {
		if err := r.add(namespace, part); err != nil {
			return nil, err
		}
	}
	i.registrations = append(i.registrations, r)
	return r, nil
}

// RemoveEventHandler implements cache.Informer; nobody asks for it.
func (i *informer) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error {
	return errors.New("handlers of the exchange cannot be removed")
}

// AddIndexers implements cache.Informer; caches.IndexField is what is used.
func (i *informer) AddIndexers(toolscache.Indexers) error {
	return errors.New("expected an index by IndexField")
}

// HasSynced implements cache.Informer.
func (i *informer) HasSynced() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, part := range i.parts {
		if !part.HasSynced() {
			return false
		}
	}
	return true
}

// HasSyncedChecker implements cache.Informer.
func (i *informer) HasSyncedChecker() toolscache.DoneChecker {
	return checker{name: fmt.Sprintf("%T in the exchange", i.object), synced: i.HasSynced}
}

// IsStopped implements cache.Informer: namespaces come and go, the whole stays.
func (i *informer) IsStopped() bool { return false }

// HasSynced implements toolscache.ResourceEventHandlerRegistration.
func (r *registration) HasSynced() bool {
	r.owner.mu.Lock()
	defer r.owner.mu.Unlock()
	for _, part := range r.parts {
		if !part.HasSynced() {
			return false
		}
	}
	return true
}

// HasSyncedChecker implements toolscache.ResourceEventHandlerRegistration.
func (r *registration) HasSyncedChecker() toolscache.DoneChecker {
	return checker{name: fmt.Sprintf("handler of %T in the exchange", r.owner.object), synced: r.HasSynced}
}

// checker turns a question into a channel. What answers it may change with the
// namespaces, so there is nothing else to wait for.
type checker struct {
	name   string
	synced func() bool
}

const checkEvery = 20 * time.Millisecond

// Name implements toolscache.DoneChecker.
func (c checker) Name() string { return c.name }

// Done implements toolscache.DoneChecker.
func (c checker) Done() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !c.synced() {
			time.Sleep(checkEvery)
		}
	}()
	return done
}
