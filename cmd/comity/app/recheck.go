// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// recheck hands on that what is said of exports may differ now: of one, of those
// in a namespace, or of all. Whoever tells it never waits. What is not read yet
// is told once, however often it happened, and too much of it becomes all, so a
// replica that does not lead keeps only so much.
type recheck struct {
	out  chan event.GenericEvent
	wake chan struct{}

	mu      sync.Mutex
	pending map[types.NamespacedName]struct{} // without a name: all in the namespace; zero: all
}

// maxPending is how many notices are kept apart.
const maxPending = 1000

func newRecheck() *recheck {
	return &recheck{out: make(chan event.GenericEvent), wake: make(chan struct{}, 1), pending: map[types.NamespacedName]struct{}{}}
}

// export tells of one export; of all in a namespace without a name; of all
// without either.
func (r *recheck) export(key types.NamespacedName) {
	everything := types.NamespacedName{}
	r.mu.Lock()
	if len(r.pending) >= maxPending {
		key = everything
	}
	if key == everything {
		clear(r.pending) // it includes each
	}
	if _, all := r.pending[everything]; !all {
		r.pending[key] = struct{}{}
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// namespace tells of all exports of one namespace, or of all if name is "".
func (r *recheck) namespace(name string) { r.export(types.NamespacedName{Namespace: name}) }

func (r *recheck) all() { r.namespace("") }

// Start implements manager.Runnable; it runs on every replica, since notices
// come on every replica.
func (r *recheck) Start(ctx context.Context) error {
	for {
		key, found := r.take()
		if !found {
			select {
			case <-ctx.Done():
				return nil
			case <-r.wake:
			}
			continue
		}
		notice := event.GenericEvent{Object: &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}}
		select {
		case <-ctx.Done():
			return nil
		case r.out <- notice:
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (r *recheck) NeedLeaderElection() bool { return false }

func (r *recheck) take() (types.NamespacedName, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.pending {
		delete(r.pending, key)
		return key, true
	}
	return types.NamespacedName{}, false
}
