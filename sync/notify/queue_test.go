// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func item(format string, args ...any) reconcile.Request {
	return reconcile.Request{NamespacedName: key(fmt.Sprintf(format, args...))}
}

// drain takes everything that waits, and says what in which order.
func drain(t *testing.T, queue *Queue) []string {
	t.Helper()
	var out []string
	for queue.Len() > 0 {
		out = append(out, next(t, queue))
	}
	return out
}

func TestOwnChangesComeFirstAndListedKeysLast(t *testing.T) {
	queue := newQueue(t)
	queue.AddFrom(Listed, item("listed"))
	queue.AddFrom("b", item("member"))
	queue.AddFrom(Listed, item("edited"))
	queue.Add(item("own"))
	queue.Add(item("edited"))
	if got, want := drain(t, queue), []string{"own", "edited", "member", "listed"}; !slices.Equal(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
}

func TestTheMemberThatUsedLeastTimeComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newQueue(t)
		for n := range 3 {
			queue.AddFrom("b", item("b%d", n))
			queue.AddFrom("c", item("c%d", n))
		}
		var got []string
		for range 6 {
			request, _ := queue.Get()
			got = append(got, request.Name)
			if request.Name[0] == 'b' {
				time.Sleep(50 * time.Millisecond)
			} else {
				time.Sleep(20 * time.Millisecond)
			}
			queue.Done(request)
		}
		if want := []string{"b0", "c0", "c1", "c2", "b1", "b2"}; !slices.Equal(got, want) {
			t.Errorf("got %v; want %v", got, want)
		}
	})
}

func TestWhoPaysForItsSlicesDoesNotTakeTimeFromOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newQueue(t)
		queue.AddFrom("b", item("shared"))
		request, _ := queue.Get()
		time.Sleep(100 * time.Millisecond)
		queue.Pay(request, "c", 100*time.Millisecond)
		queue.Done(request)
		queue.AddFrom("c", item("c"))
		queue.AddFrom("b", item("b"))
		if got, want := drain(t, queue), []string{"b", "c"}; !slices.Equal(got, want) {
			t.Errorf("got %v; want %v", got, want)
		}
	})
}

// FAULT 47: how often a member changes something costs no more than its budget.
func TestChangesThatComeTooFastCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newQueue(t)
		taken := 0
		for range 500 { // for 5 s
			queue.Changed("b", item("web"))
			taken += len(drain(t, queue))
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(interval)
		synctest.Wait()
		taken += len(drain(t, queue))
		if most := 6 * (ChangesAtOnce + 1); taken < 4*ChangesAtOnce || taken > most {
			t.Errorf("%d of 500 changes counted; want %d to %d", taken, 4*ChangesAtOnce, most)
		}
		time.Sleep(2 * interval)
		if len(queue.order.changes) > 0 {
			t.Errorf("still remembers %v", queue.order.changes)
		}
	})
}

func TestARetryIsStillWorkOfWhoMadeTheItemDirty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newQueue(t)
		queue.AddFrom("c", item("c"))
		request, _ := queue.Get()
		time.Sleep(100 * time.Millisecond)
		queue.AddAfter(request, time.Millisecond)
		queue.Done(request)
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		queue.AddFrom("b", item("b"))
		if got, want := drain(t, queue), []string{"b", "c"}; !slices.Equal(got, want) {
			t.Errorf("got %v; want %v", got, want)
		}
	})
}

func TestTheEchoOfAWriteIsNoWorkOfThisCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newQueue(t)
		echo := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "echo"}}
		h := (&Source{Queue: queue}).ByComity(Itself)
		h.Update(t.Context(), event.TypedUpdateEvent[client.Object]{ObjectOld: echo, ObjectNew: echo}, queue)
		synctest.Wait()
		if got := drain(t, queue); len(got) > 0 {
			t.Errorf("got %v at once, before the rest of what was written shows", got)
		}
		time.Sleep(settle)
		synctest.Wait()
		h.Create(t.Context(), event.TypedCreateEvent[client.Object]{Object: echo, IsInInitialList: true}, queue)
		if queue.Unfinished() != 1 {
			t.Error("what exists at the start is added, although it is listed")
		}
		queue.Add(item("own"))
		if got, want := drain(t, queue), []string{"own", "echo"}; !slices.Equal(got, want) {
			t.Errorf("got %v; want %v", got, want)
		}
	})
}

func TestWhatNoTrafficWaitsForIsReconciledOnceForAllThatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := NewPatientQueue(8, ChangesAtOnce)
		queue.Open("", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer queue.ShutDown()
		for range 5 {
			queue.Add(item("web"))
			queue.Changed("b", item("web"))
			time.Sleep(settle/6 + time.Millisecond)
		}
		synctest.Wait()
		if got := drain(t, queue); len(got) > 0 {
			t.Errorf("got %v before all of it changed", got)
		}
		time.Sleep(settle/6 + time.Millisecond)
		synctest.Wait()
		if got := drain(t, queue); !slices.Equal(got, []string{"web"}) {
			t.Errorf("got %v; want web once", got)
		}
	})
}

// work serves a queue with so many workers, each item for so long, and gives what is taken.
func work(queue *Queue, workers int, each time.Duration) <-chan string {
	taken := make(chan string, 100)
	for range workers {
		go func() {
			for {
				request, shutdown := queue.Get()
				if shutdown {
					return
				}
				taken <- request.Name
				time.Sleep(each)
				queue.Done(request)
			}
		}()
	}
	return taken
}

func TestAMemberThatUsedMoreThanItsShareHasOneWorkerThatRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newQueue(t)
		taken := work(queue, 8, 100*time.Millisecond)
		busy := func(from Origin, n int) int {
			for i := range n {
				queue.AddFrom(from, item("%s%d", from, i))
			}
			synctest.Wait()
			defer func() {
				for len(taken) > 0 {
					<-taken
				}
			}()
			return len(taken)
		}
		if got := busy("b", 50); got != 8 {
			t.Errorf("alone, a member has %d workers; want all 8", got)
		}
		time.Sleep(time.Second)
		busy("c", 1)
		time.Sleep(150 * time.Millisecond)
		if got := busy("b", 50); got != 1 {
			t.Errorf("beside another one, a member that used more has %d workers; want 1", got)
		}
		time.Sleep(590 * time.Millisecond)
		synctest.Wait()
		if got := len(taken); got != 0 {
			t.Errorf("%d items were taken while the worker rests, half a second at most", got)
		}
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		if got := len(taken); got != 1 {
			t.Errorf("%d items were taken after the rest; want 1", got)
		}
		<-taken
		if got := busy("c", 1); got != 1 {
			t.Error("what the other one changes waits")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if left := queue.order.Len(); left > 0 {
			t.Errorf("%d items wait for ever", left)
		}
	})
}

// burst has one more member do something, and returns what takes n items of b that are added
// at once: how many workers have one when all that may be taken is.
func burst(queue *Queue, taken <-chan string, n int) int {
	queue.AddFrom("c", item("c"))
	synctest.Wait()
	<-taken
	time.Sleep(101 * time.Millisecond) // it has ended: after 100, it may end at any moment
	for i := range n {
		queue.AddFrom("b", item("b%d", i))
	}
	synctest.Wait()
	return len(taken)
}

func TestOthersAreServedWhileAMemberRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newQueue(t)
		taken := work(queue, 8, 100*time.Millisecond)
		if got := burst(queue, taken, 50); got != 8 {
			t.Fatalf("of a member that used nothing, %d items were taken at once; want 8", got)
		}
		for len(taken) > 0 {
			<-taken
		}
		time.Sleep(101 * time.Millisecond) // these end
		synctest.Wait()
		if got := len(taken); got != 0 {
			t.Errorf("%d more items of the member were taken; want none while it rests", got)
		}
		queue.Changed("c", item("c"))
		synctest.Wait()
		if got := len(taken); got != 1 {
			t.Error("what another one changes waits until a member has rested")
		}
		time.Sleep(time.Minute) // all is done
	})
}

func TestTheMoreOfItsShareAMemberUsedTheFewerOfItsChangesCountAtOnce(t *testing.T) {
	for used, want := range map[time.Duration]int{
		0: ChangesAtOnce, floor / 2: ChangesAtOnce, floor * 3 / 4: ChangesAtOnce / 2, floor * 9 / 10: ChangesAtOnce / 5, floor: 1, time.Minute: 1,
	} {
		synctest.Test(t, func(t *testing.T) {
			queue := newQueue(t)
			queue.order.charge("b", time.Now(), used)
			queue.order.charge("c", time.Now(), time.Millisecond)
			got := 0
			for range 2 * ChangesAtOnce {
				if queue.counts(change{"b", item("x")}) {
					got++
				}
			}
			if got < want-1 || got > want { // it is rounded down
				t.Errorf("of a member that used %v, %d changes count at once; want %d", used, got, want)
			}
			time.Sleep(time.Minute) // all is done
		})
	}
}

func TestAMemberWithinItsShareDoesNotTakeMoreThanItAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newQueue(t)
		taken := work(queue, 8, 100*time.Millisecond)
		queue.AddFrom("b", item("first"))
		time.Sleep(2 * time.Second)
		<-taken
		if got, want := burst(queue, taken, 50), int(floor/(100*time.Millisecond))+1; got != want {
			t.Errorf("%d items that take 100 ms each were taken at once; want %d", got, want)
		}
		time.Sleep(time.Minute) // all is done
	})
}

// A member that changes something a few times a second is not held back because another one
// does even less.
func TestAMemberThatUsesLittleNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := newQueue(t)
		taken := work(queue, 1, 15*time.Millisecond)
		for n := range 40 { // for 4 s
			queue.Changed("b", item("b"))
			if n%5 == 0 {
				queue.Changed("c", item("c"))
			}
			time.Sleep(50 * time.Millisecond)
			synctest.Wait()
			if want := 1 + (5-n%5)/5; len(taken) != want {
				t.Errorf("%d items were taken after change %d, want %d", len(taken), n, want)
			}
			for len(taken) > 0 {
				<-taken
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
}
