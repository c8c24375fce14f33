// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package notify passes changes from the part of the agent that detects them to
// the workqueues of the controllers that react to them.
//
// It takes a value, such as a key or "every key"; it gives it to each subscriber at
// once. A workqueue coalesces, so neither side waits for the other and no
// notification is lost. It decides nothing and stores nothing.
package notify

import (
	"context"
	"sync"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Topic passes each published value to any number of subscribers. The zero value
// has no subscriber and is ready for use. All methods may be called from any goroutine.
type Topic[T any] struct {
	mu          sync.RWMutex
	next        int
	subscribers map[int]func(T)
}

// Publish calls every subscriber with value.
func (t *Topic[T]) Publish(value T) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, subscriber := range t.subscribers {
		subscriber(value)
	}
}

// Subscribe has subscriber called by Publish. It may neither block nor use the
// Topic. The returned function ends the subscription.
func (t *Topic[T]) Subscribe(subscriber func(T)) (cancel func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.subscribers == nil {
		t.subscribers = map[int]func(T){}
	}
	id := t.next
	t.next++
	t.subscribers[id] = subscriber
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.subscribers, id)
	}
}

// Both is a function that calls both, the first one first.
func Both(first, second func()) func() {
	return func() {
		first()
		second()
	}
}

// Notifier notifies any number of subscribers that something changed. The zero
// value has no subscriber and is ready for use. All methods may be called from
// any goroutine.
type Notifier struct {
	keys Topic[types.NamespacedName]
	all  Topic[struct{}]
}

// Key notifies all subscribers that key may be different now.
func (n *Notifier) Key(key types.NamespacedName) { n.keys.Publish(key) }

// All notifies all subscribers that any key may be different now.
func (n *Notifier) All() { n.all.Publish(struct{}{}) }

// Subscribe has key and all called by Key and All. Neither may block or use the
// Notifier. The returned function ends the subscription.
func (n *Notifier) Subscribe(key func(types.NamespacedName), all func()) (cancel func()) {
	return Both(n.keys.Subscribe(key), n.all.Subscribe(func(struct{}) { all() }))
}

// ListKeys returns the keys of all objects that reader lists into list, an empty
// list of their kind. It reads them without copying.
func ListKeys(ctx context.Context, reader client.Reader, list client.ObjectList, opts ...client.ListOption) ([]types.NamespacedName, error) {
	if err := reader.List(ctx, list, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, err
	}
	keys := make([]types.NamespacedName, 0, apimeta.LenList(list))
	err := apimeta.EachListItem(list, func(object runtime.Object) error {
		accessor, err := apimeta.Accessor(object)
		if err == nil {
			keys = append(keys, types.NamespacedName{Namespace: accessor.GetNamespace(), Name: accessor.GetName()})
		}
		return err
	})
	return keys, err
}

// Queue is that of a controller.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// optionalWait is how long a Source waits for what it can do without.
const optionalWait = 30 * time.Second

// How the keys of a list are enqueued after the first one: so many at a time, and
// between two portions a pause as long as the workers took for the last one.
// A change of one key then finds a processor that is not busy with the list.
const (
	portion     = 8
	portionPoll = time.Millisecond
	portionWait = time.Second // for workers that do not take a portion
)

// Source is a source of a controller. It enqueues the keys that List returns, at
// start and after each All of a Notifier, and the key of each Key. Keys that were
// listed have a low priority, and come in portions after the start: however many
// there are, a change of one does not wait for them.
type Source struct {
	Notifiers []*Notifier
	// List returns every key that the controller has to reconcile. Its error is
	// logged, and the keys wait for the next All.
	List func(context.Context) ([]types.NamespacedName, error)
	// Required channels are closed once the controller may start; nil ones are
	// left out. Optional is waited for 30 s at most; nil for nothing.
	Required []<-chan struct{}
	Optional <-chan struct{}
	// Subscribe, unless nil, is called once before the first List, for whatever is
	// no Notifier: key enqueues one key and all lists again. Neither blocks.
	Subscribe func(key func(types.NamespacedName), all func()) (cancel func())
}

var _ source.SyncingSource = (*Source)(nil)

// WaitForSync returns once the workers of the controller may start.
func (s *Source) WaitForSync(ctx context.Context) error {
	for _, ready := range s.Required {
		if ready == nil {
			continue
		}
		select {
		case <-ready:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if s.Optional == nil {
		return nil
	}
	timer := time.NewTimer(optionalWait)
	defer timer.Stop()
	select {
	case <-s.Optional:
	case <-timer.C:
		ctrl.LoggerFrom(ctx).Info("the properties of this cluster are still unknown, starting without them; check that the agent can read Nodes and ServiceCIDRs")
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Start does not block.
func (s *Source) Start(ctx context.Context, queue Queue) error {
	list := make(chan struct{}, 1)
	key := func(key types.NamespacedName) { queue.Add(reconcile.Request{NamespacedName: key}) }
	all := func() {
		select {
		case list <- struct{}{}:
		default: // a listing is due already
		}
	}
	if s.Subscribe != nil {
		context.AfterFunc(ctx, s.Subscribe(key, all))
	}
	for _, n := range s.Notifiers {
		context.AfterFunc(ctx, n.Subscribe(key, all))
	}
	all()
	go func() {
		for first := true; ; first = false {
			select {
			case <-ctx.Done():
				return
			case <-list:
			}
			keys, err := s.List(ctx)
			if err != nil && ctx.Err() == nil {
				ctrl.LoggerFrom(ctx).Error(err, "list the keys to reconcile")
			}
			if first {
				addLast(queue, keys)
				continue
			}
			addInPortions(ctx, queue, keys)
		}
	}()
	return nil
}

// addInPortions enqueues keys a portion at a time, until ctx ends.
func addInPortions(ctx context.Context, queue Queue, keys []types.NamespacedName) {
	for len(keys) > portion && ctx.Err() == nil {
		begun := time.Now()
		addLast(queue, keys[:portion])
		keys = keys[portion:]
		// The error says that the workers are busy with something else, or that ctx ended.
		_ = wait.PollUntilContextTimeout(ctx, portionPoll, portionWait, false, func(context.Context) (bool, error) { return queue.Len() == 0, nil })
		select {
		case <-ctx.Done():
		case <-time.After(time.Since(begun)):
		}
	}
	addLast(queue, keys)
}

// addLast enqueues keys behind those of single changes.
func addLast(queue Queue, keys []types.NamespacedName) {
	requests := make([]reconcile.Request, len(keys))
	for n, key := range keys {
		requests[n].NamespacedName = key
	}
	if ordered, is := queue.(priorityqueue.PriorityQueue[reconcile.Request]); is {
		ordered.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(handler.LowPriority)}, requests...)
		return
	}
	for _, request := range requests {
		queue.Add(request)
	}
}
