// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/comity-mcs/comity/sync/apply"
)

// A join makes the exchange namespace moments before the right to write to it.
// A flat minute of waiting there was a minute until the first import.
func TestARefusedWriteIsTriedAgainSoonAndThenMoreRarely(t *testing.T) {
	b := &base{
		conflicts: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		refusals:  workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRefused, lastRefused),
	}
	req := reconcile.Request{NamespacedName: types.NamespacedName{Name: "default"}}
	refused := func() time.Duration {
		result, err := b.retry(context.Background(), req, &apply.Error{Class: apply.Refused})
		if err != nil {
			t.Fatalf("got error %v, want a time to try again: an error would be logged and retried hot", err)
		}
		return result.RequeueAfter
	}
	var waits []time.Duration
	for range 12 {
		waits = append(waits, refused())
	}
	if waits[0] > time.Second || waits[2] > time.Second {
		t.Errorf("got waits %v, want the first three within a second each", waits)
	}
	if last := waits[len(waits)-1]; last != time.Minute {
		t.Errorf("got waits %v, want them to end at a minute", waits)
	}
	b.settled(req)
	if again := refused(); again != waits[0] {
		t.Errorf("got %v after a success, want to start over at %v", again, waits[0])
	}
}

// Without this a restart called every export pending until the policies were
// loaded, and exported again a moment later: two writes and two events for each.
func TestNoWorkerStartsBeforeAllThatItsSourceNeedsIsThere(t *testing.T) {
	peers, policies := make(chan struct{}), make(chan struct{})
	w := &waking{ready: []<-chan struct{}{peers, nil, policies}}
	synced := make(chan error, 1)
	go func() { synced <- w.WaitForSync(t.Context()) }()
	for _, one := range []chan struct{}{policies, peers} {
		select {
		case err := <-synced:
			t.Fatalf("got %v, want it to wait for both", err)
		case <-time.After(20 * time.Millisecond):
		}
		close(one)
	}
	select {
	case err := <-synced:
		if err != nil {
			t.Errorf("got error %v once both are there", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("still waits once both are there")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (&waking{ready: []<-chan struct{}{make(chan struct{})}}).WaitForSync(ended); err == nil {
		t.Error("got no error from a wait that was given up")
	}
}
