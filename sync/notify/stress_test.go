// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// Whatever is added, by whom and when, is reconciled in the end.
func TestEverythingThatIsAddedIsReconciled(t *testing.T) {
	origins := []Origin{Own, Derived, Listed, "b", "c"}
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			queue := newQueue(t)
			for range 8 {
				go func() {
					for {
						request, shutdown := queue.Get()
						if shutdown {
							return
						}
						time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond)
						if rand.IntN(3) == 0 {
							queue.Pay(request, "c", time.Duration(rand.IntN(40))*time.Millisecond)
						}
						queue.Done(request)
					}
				}()
			}
			for n := range 400 {
				origin := origins[random.IntN(len(origins))]
				if random.IntN(2) == 0 {
					queue.Changed(origin, item("x%d", random.IntN(150)))
				} else {
					queue.AddFrom(origin, item("x%d", n))
				}
				if random.IntN(20) == 0 {
					time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
				}
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			queue.order.mu.Lock()
			if left := len(queue.order.waiting); left > 0 {
				t.Errorf("seed %d: %d items wait", seed, left)
			}
			queue.order.mu.Unlock()
			queue.ShutDown()
		})
		if t.Failed() {
			return
		}
	}
}
