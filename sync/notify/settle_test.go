// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestAChangeWaitsUntilItIsSettled(t *testing.T) {
	for name, test := range map[string]struct {
		add func(*Queue)
		// again has the item reconciled once more before it is settled.
		again func(*Queue)
		want  time.Duration // since when it waits; zero: it does not
	}{
		"a user's change":   {add: func(q *Queue) { q.Add(item("x")) }, want: 5 * time.Second},
		"a member's change": {add: func(q *Queue) { q.AddFrom("b", item("x")) }, want: 5 * time.Second},
		"the first of two changes": {
			add:  func(q *Queue) { q.AddFrom("b", item("x")); time.Sleep(time.Second); q.Add(item("x")) },
			want: 6 * time.Second,
		},
		"what Comity wrote itself": {add: func(q *Queue) { q.AddFrom(Derived, item("x")) }},
		"what was only listed":     {add: func(q *Queue) { q.AddFrom(Listed, item("x")) }},
		"a change of what was listed": {
			add:  func(q *Queue) { q.AddFrom(Listed, item("x")); time.Sleep(time.Second); q.AddFrom("b", item("x")) },
			want: 5 * time.Second,
		},
		"a change whose write failed once": {
			add:   func(q *Queue) { q.Add(item("x")) },
			again: func(q *Queue) { q.AddAfter(item("x"), time.Minute) },
			want:  5*time.Second + time.Minute,
		},
		"a change that came too often at once": {
			add: func(q *Queue) {
				for range ChangesAtOnce + 1 {
					q.Changed("b", item("x"))
				}
			},
			want: 5 * time.Second,
		},
		"a change that was settled, and another turn later": {
			add: func(q *Queue) { q.Add(item("x")) },
			again: func(q *Queue) {
				q.Settle(item("x"))
				q.AddAfter(item("x"), time.Minute)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				queue := newQueue(t)
				test.add(queue)
				time.Sleep(5 * time.Second)
				taken, _ := queue.Get()
				if test.again != nil {
					test.again(queue)
					queue.Done(taken)
					taken, _ = queue.Get()
				}
				seen := queue.Settle(taken)
				if got := time.Since(seen); seen.IsZero() != (test.want == 0) || test.want != 0 && got != test.want {
					t.Errorf("seen %v, %v ago; expected %v ago", seen, got, test.want)
				}
				if again := queue.Settle(taken); !again.IsZero() {
					t.Errorf("it waits since %v though it was settled", again)
				}
				queue.Done(taken)
				queue.ShutDown()
			})
		})
	}
}

func TestWhatWaitsForAWorkerIsReconciledOnceForAllThatChangesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := NewPatientQueue(8, 1)
		queue.Open("", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer queue.ShutDown()
		queue.AddFrom(Listed, item("x"))
		time.Sleep(2 * settle)
		queue.AddFrom(Derived, item("x"))
		taken, _ := queue.Get()
		queue.Done(taken)
		time.Sleep(2 * settle)
		if n := queue.Unfinished(); n != 0 {
			t.Errorf("%d items wait; want none: it waited for a worker when it changed", n)
		}
	})
}

func TestWhatIsReconciledMeanwhileIsNotReconciledOnceMoreForWhatComityWrote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newQueue(t)
		queue.AddFrom(Derived, item("x"))
		time.Sleep(settle - time.Millisecond)
		queue.AddFrom("b", item("x"))
		taken, _ := queue.Get() // after what was written shows
		queue.AddFrom(Derived, item("y"))
		time.Sleep(2 * time.Millisecond) // x would be added now
		queue.Done(taken)
		synctest.Wait()
		if n := queue.Unfinished(); n != 0 {
			t.Errorf("%d items wait; want none: x was reconciled after what was written for it", n)
		}
		time.Sleep(settle)
		synctest.Wait()
		if got := drain(t, queue); !slices.Equal(got, []string{"y"}) {
			t.Errorf("got %v; want y, which nothing else reconciled", got)
		}
	})
}

func TestWhatComityWroteWhileAnItemIsReconciledHasItReconciledOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newQueue(t)
		queue.Add(item("x"))
		taken, _ := queue.Get() // before it shows
		queue.AddFrom(Derived, item("x"))
		time.Sleep(settle / 2)
		queue.Done(taken)
		time.Sleep(settle)
		synctest.Wait()
		if got := drain(t, queue); !slices.Equal(got, []string{"x"}) {
			t.Errorf("got %v; want x once more", got)
		}
	})
}
