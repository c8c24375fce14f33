// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package wake tells reconcilers of events that concern many keys at once.
//
// It takes channels that deliver when something happened; it gives sources that
// enqueue every key there is to look at again. Whoever tells never waits for
// those who are told, and what happens while they are busy is told once.
// It decides nothing and reads no cluster itself.
package wake

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// patience is how long a source waits for what it could do without.
const patience = 30 * time.Second

// Queue is that of a reconciler.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Broadcast hands one channel of events to several listeners, none of which can
// hold up another or the sender.
type Broadcast struct {
	Source <-chan event.GenericEvent
	// Each is called with every event, before any listener knows; may be nil.
	Each func(event.GenericEvent)

	mu        sync.Mutex
	listeners []chan struct{}
}

// Listen is a new channel that delivers after every event; several in a row may
// be one.
func (b *Broadcast) Listen() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	wake := make(chan struct{}, 1)
	b.listeners = append(b.listeners, wake)
	return wake
}

// NeedLeaderElection is false: whoever sends must not wait for us to lead.
func (b *Broadcast) NeedLeaderElection() bool { return false }

// Start passes events on until ctx ends or the source closes.
func (b *Broadcast) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, open := <-b.Source: // a nil source never delivers
			if !open {
				<-ctx.Done()
				return nil
			}
			if b.Each != nil {
				b.Each(e)
			}
		}
		b.mu.Lock()
		for _, wake := range b.listeners {
			Kick(wake)
		}
		b.mu.Unlock()
	}
}

// Kick wakes whoever reads from a channel with room for one, and never waits.
func Kick(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default: // a kick is pending already
	}
}

// Keys is a source that enqueues what List gives, at start and whenever one of
// the channels delivers. It is how an event that concerns all keys is told
// without making its sender wait. What is Ready, each unless nil, is waited for first.
type Keys struct {
	Ready []<-chan struct{}
	// Patient, unless nil, is waited for too, but not for ever.
	Patient <-chan struct{}
	Wakes   []<-chan struct{}
	List    func(context.Context) ([]types.NamespacedName, error)
	// Before runs once, ahead of the first listing.
	Before func(context.Context, Queue)
}

var _ source.SyncingSource = (*Keys)(nil)

// WaitForSync lets no worker start before the source is ready.
func (w *Keys) WaitForSync(ctx context.Context) error {
	for _, ready := range w.Ready {
		if ready == nil {
			continue
		}
		select {
		case <-ready:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if w.Patient == nil {
		return nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-w.Patient:
	case <-timer.C:
		ctrl.LoggerFrom(ctx).Info("going on without what this cluster is like; see whether Nodes and ServiceCIDRs can be read")
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Start does not block.
func (w *Keys) Start(ctx context.Context, q Queue) error {
	if w.Before != nil {
		w.Before(ctx, q)
	}
	for _, wake := range append(w.Wakes, once()) {
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-wake:
				}
				keys, err := w.List(ctx)
				if err != nil {
					if ctx.Err() == nil { // a cache answers or is stopping
						ctrl.LoggerFrom(ctx).Error(err, "cannot list keys")
					}
					return
				}
				for _, key := range keys {
					q.Add(reconcile.Request{NamespacedName: key})
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
