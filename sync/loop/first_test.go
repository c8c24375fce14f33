// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"runtime"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/comity-mcs/comity/sync/loop/internal/wake"
)

// The copy in this cluster's own import must not compete with the one in the
// exchange for the API server, nor be forgotten for it.
func TestAChangedSliceReachesTheExchangeFirst(t *testing.T) {
	key := types.NamespacedName{Namespace: "shop", Name: "web"}
	h := afterOthers(func(context.Context, client.Object) []types.NamespacedName { return []types.NamespacedName{key} })
	slice := &discoveryv1.EndpointSlice{}
	for _, c := range []struct {
		name string
		tell func(wake.Queue)
		now  bool
	}{
		{"a new slice is imported at once", func(q wake.Queue) { h.Create(t.Context(), event.CreateEvent{Object: slice}, q) }, true},
		{"a deleted one too", func(q wake.Queue) { h.Delete(t.Context(), event.DeleteEvent{Object: slice}, q) }, true},
		{"a changed one waits", func(q wake.Queue) {
			h.Update(t.Context(), event.UpdateEvent{ObjectOld: slice, ObjectNew: slice}, q)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Unix(0, 0))
			q := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request](),
				workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(
					workqueue.TypedDelayingQueueConfig[reconcile.Request]{Clock: clock})})
			defer q.ShutDown()
			c.tell(q)
			if now := q.Len() == 1; now != c.now {
				t.Errorf("enqueued at once: %v, want %v", now, c.now)
			}
			// The queue starts its timer when it likes, so the clock goes on until it has.
			for q.Len() == 0 {
				clock.Step(othersFirst)
				runtime.Gosched()
			}
			if got, _ := q.Get(); got.NamespacedName != key {
				t.Errorf("got %v, want %v", got, key)
			}
		})
	}
}
