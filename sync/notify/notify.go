// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package notify passes changes from the part of the agent that detects them to
// the workqueues of the controllers that react to them, and has these workqueues.
//
// It takes a value, such as a key or "every key"; it gives it to each subscriber at
// once. A workqueue coalesces, so neither side waits for the other and no
// notification is lost. A Queue serves first whoever used least of the workers' time;
// nothing else is decided here.
package notify

import (
	"context"
	"fmt"
	"sync"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Topic passes each published value to any number of subscribers. The zero value
// has no subscriber and is ready for use. All methods may be called from any goroutine.
type Topic[T any] struct {
	mu          sync.RWMutex
	subscribers sets.Set[*func(T)]
}

// Publish calls every subscriber with value.
func (t *Topic[T]) Publish(value T) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for subscriber := range t.subscribers {
		(*subscriber)(value)
	}
}

// Subscribe has subscriber called by Publish. It may neither block nor use the
// Topic. The returned function ends the subscription.
func (t *Topic[T]) Subscribe(subscriber func(T)) (cancel func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.subscribers == nil {
		t.subscribers = sets.Set[*func(T)]{}
	}
	t.subscribers.Insert(&subscriber)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.subscribers.Delete(&subscriber)
	}
}

// Change is a key that may be different now, and who changed it. The zero Key is every key.
type Change struct {
	From Origin
	Key  types.NamespacedName
}

// Notifier notifies any number of subscribers that something changed. The zero
// value has no subscriber and is ready for use. All methods may be called from
// any goroutine.
type Notifier struct{ Topic[Change] }

// Key notifies all subscribers that key may be different now.
func (n *Notifier) Key(key types.NamespacedName) { n.Publish(Change{Derived, key}) }

// All notifies all subscribers that any key may be different now.
func (n *Notifier) All() { n.Publish(Change{}) }

// EachListed calls do with each object that reader lists into list, an empty list of their
// kind. The objects are not copied.
func EachListed(ctx context.Context, reader client.Reader, list client.ObjectList, do func(client.Object), opts ...client.ListOption) error {
	if err := reader.List(ctx, list, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		return fmt.Errorf("list into %T: %w", list, err)
	}
	return apimeta.EachListItem(list, func(object runtime.Object) error {
		do(object.(client.Object))
		return nil
	})
}

// Keys are the keys that an object concerns.
type Keys func(context.Context, client.Object) []types.NamespacedName

// ListKeys returns the keys that all objects concern which reader lists into list, as EachListed does.
func ListKeys(ctx context.Context, reader client.Reader, list client.ObjectList, of Keys, opts ...client.ListOption) (keys []types.NamespacedName, _ error) {
	err := EachListed(ctx, reader, list, func(object client.Object) { keys = append(keys, of(ctx, object)...) }, opts...)
	return keys, err
}

// Source is a source of the controller that has Queue. It enqueues the keys that List
// returns, at start and after each Change of every key, and the key of each other Change. Keys that
// were listed come last: however many there are, a change of one does not wait for them.
type Source struct {
	// Queue is the one of which Open is the controller's Options.NewQueue. It is required.
	Queue *Queue
	// List returns every key that the controller has to reconcile, also more than once: handlers
	// leave out what exists at the start. Its
	// error is logged, and the keys wait for the next time.
	List func(context.Context) ([]types.NamespacedName, error)
	// Required channels are closed once the controller may start, and List be called; nil
	// ones are left out. What other sources enqueue before is reconciled once then.
	Required []<-chan struct{}
	// First, unless nil, is called after that and before the first List, and returns once that
	// is worth its work. Changes are not held up.
	First func(context.Context)
	// Subscribe are called once before the first List.
	Subscribe []Subscribe
}

// Subscribe has changed called with each Change until cancel is called, as Notifier.Subscribe
// does. Changed does not block.
type Subscribe = func(changed func(Change)) (cancel func())

var _ source.SyncingSource = (*Source)(nil)

// WaitForSync returns once the workers of the controller may start.
func (s *Source) WaitForSync(ctx context.Context) error {
	for _, ready := range s.Required {
		if ready != nil && !Await(ctx, ready) {
			return ctx.Err()
		}
	}
	return nil
}

// Await waits until c gives something or is closed, and is false if ctx ended before.
func Await[T any](ctx context.Context, c <-chan T) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// Start does not block.
func (s *Source) Start(ctx context.Context, _ requests) error {
	list := NewWake()
	changed := func(c Change) {
		if c.Key == (types.NamespacedName{}) {
			list.Up()
			return
		}
		s.Queue.Changed(c.From, reconcile.Request{NamespacedName: c.Key})
	}
	for _, subscribe := range s.Subscribe {
		context.AfterFunc(ctx, subscribe(changed))
	}
	list.Up()
	go func() {
		if s.WaitForSync(ctx) != nil {
			return
		}
		if s.First != nil {
			s.First(ctx)
		}
		for first := true; list.Wait(ctx); first = false {
			if !first && !Await(ctx, time.After(settle)) { // what changes together is one reason for a list, too
				return
			}
			select {
			case <-list:
			default:
			}
			keys, err := s.List(ctx)
			if err != nil && ctx.Err() == nil {
				ctrl.LoggerFrom(ctx).Error(err, "list the keys to reconcile")
			}
			for key := range sets.New(keys...) { // once each: a worker may be done with the first already
				s.Queue.AddFrom(Listed, reconcile.Request{NamespacedName: key})
			}
			if first {
				s.Queue.order.firstListed()
			}
		}
	}()
	return nil
}

// requests is what a controller gives its handlers and sources: its queue, in a wrapper.
type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

// ByUsers is a handler of objects that users of this cluster change. It enqueues the keys that
// an object concerns, unless the object existed at the start: each of these is reconciled once
// then because List returns it, after whatever changes meanwhile.
func (s *Source) ByUsers(keys Keys) handler.EventHandler { return s.handler(Own, keys) }

// ByComity is ByUsers for objects that mostly Comity changes.
func (s *Source) ByComity(keys Keys) handler.EventHandler { return s.handler(Derived, keys) }

func (s *Source) handler(from Origin, keys Keys) handler.EventHandler {
	add := func(ctx context.Context, object client.Object) {
		for _, key := range keys(ctx, object) {
			s.Queue.AddFrom(from, reconcile.Request{NamespacedName: key})
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, _ requests) {
			if !e.IsInInitialList {
				add(ctx, e.Object)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, _ requests) {
			add(ctx, e.ObjectOld)
			add(ctx, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, _ requests) { add(ctx, e.Object) },
	}
}

// Itself is the key of an object, and Keys.
func Itself(_ context.Context, o client.Object) []types.NamespacedName {
	return []types.NamespacedName{client.ObjectKeyFromObject(o)}
}

// WithoutStatus passes the events of an object but those of its status.
var WithoutStatus = predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{})

// Wake wakes one goroutine that reads everything again, so that one wake-up is kept at most.
type Wake chan struct{}

// NewWake is a Wake that nobody has used yet.
func NewWake() Wake { return make(Wake, 1) }

// Up wakes, and does not block.
func (w Wake) Up() {
	select {
	case w <- struct{}{}:
	default: // it is about to read anyway
	}
}

// Wait waits until somebody wakes, and is false if ctx ended before.
func (w Wake) Wait(ctx context.Context) bool { return Await(ctx, w) }

// Watch wakes from now on at each event about an object of a kind that matters, and returns once all
// of the kind was read, or ctx ended.
func (w Wake) Watch(ctx context.Context, from cache.Cache, kind client.Object, matters func(any) bool) error {
	informer, err := from.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	up := func(obj any) {
		if matters(obj) {
			w.Up()
		}
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: up, UpdateFunc: func(_, now any) { up(now) }, DeleteFunc: up})
	if err == nil {
		toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced)
	}
	return err
}
