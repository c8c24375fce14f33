// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// recheck hands on that verdicts may differ now: in one namespace, or in all.
// Whoever tells it never waits. What is not read yet is told once, however often
// it happened, so a replica that does not lead keeps at most one notice a namespace.
type recheck struct {
	out  chan event.GenericEvent
	wake chan struct{}

	mu      sync.Mutex
	pending map[string]struct{} // by namespace; "" is all
}

func newRecheck() *recheck {
	return &recheck{out: make(chan event.GenericEvent), wake: make(chan struct{}, 1), pending: map[string]struct{}{}}
}

// namespace tells of one namespace, or of all if name is "".
func (r *recheck) namespace(name string) {
	r.mu.Lock()
	if name == "" {
		clear(r.pending) // all includes each
	}
	if _, all := r.pending[""]; !all {
		r.pending[name] = struct{}{}
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default: // it will look anyway
	}
}

func (r *recheck) all() { r.namespace("") }

// Start implements manager.Runnable; it runs on every replica, since notices
// come on every replica.
func (r *recheck) Start(ctx context.Context) error {
	for {
		name, found := r.take()
		if !found {
			select {
			case <-ctx.Done():
				return nil
			case <-r.wake:
			}
			continue
		}
		notice := event.GenericEvent{Object: &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: name}}}
		select {
		case <-ctx.Done():
			return nil
		case r.out <- notice:
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (r *recheck) NeedLeaderElection() bool { return false }

func (r *recheck) take() (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.pending {
		delete(r.pending, name)
		return name, true
	}
	return "", false
}
