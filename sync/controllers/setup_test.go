// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

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
	if result, err := b.retry(context.Background(), req, nil); err != nil || !result.IsZero() {
		t.Errorf("got %+v and error %v after a success", result, err)
	}
	if again := refused(); again != waits[0] {
		t.Errorf("got %v after a success, want to start over at %v", again, waits[0])
	}
}
