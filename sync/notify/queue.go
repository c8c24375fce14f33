// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"slices"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// ChangesAtOnce is how many changes of one item by one origin count at once in each
// interval. What comes after these counts once, at its end. Of an origin that used half of its
// share while others have work too, the fewer count at once the more it used, and at least one.
const (
	ChangesAtOnce = 20
	interval      = time.Second
)

// settle is how long an item waits that nobody waits for: what Comity wrote shows soon in
// all caches, and the rest of what it writes follows. One reconcile is enough for these, and none
// is needed if the item is reconciled for another reason meanwhile.
const settle = 250 * time.Millisecond

// Queue is a workqueue that serves this cluster's own changes first, then the member that
// used least of the workers' time lately, and last what was only listed. While another
// member changes something too, one that used more than its share has one worker with pauses.
// So a member that changes a lot, or joins with thousands of exports, slows the others
// little; while they change nothing, it has all workers.
//
// What controller-runtime adds counts as the cluster's own.
type Queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	order   *order
	atOnce  int
	patient bool
}

// change is one origin and one item.
type change struct {
	from Origin
	item reconcile.Request
}

// changes are those of one interval.
type changes struct {
	counted int       // at once
	more    time.Time // when the first one came that counts at the end; zero: none did
}

// NewQueue returns an empty Queue for so many workers, of which Open is for controller.Options.
func NewQueue(workers int) *Queue { return &Queue{order: newOrder(workers), atOnce: ChangesAtOnce} }

// NewPatientQueue is NewQueue for items that no traffic waits for: each waits until what
// changes with it has changed as well. So many changes of one item by one origin count at
// once in a second (see ChangesAtOnce).
func NewPatientQueue(workers, atOnce int) *Queue {
	return &Queue{order: newOrder(workers), atOnce: atOnce, patient: true}
}

// Open is a controller.Options.NewQueue that returns q. Before, nothing can be added or taken.
func (q *Queue) Open(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) requests {
	q.TypedRateLimitingInterface = workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{
			Name:  name,
			Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{Name: name, Queue: q.order}),
		}),
	})
	return q
}

// Get implements workqueue.TypedInterface.
func (q *Queue) Get() (item reconcile.Request, shutdown bool) {
	for {
		// Typed.Get asks Len twice, and takes zero for a shutdown the second time. In between,
		// a member may have used more than its share.
		item, shutdown = q.TypedRateLimitingInterface.Get()
		if !shutdown || q.ShuttingDown() {
			return item, shutdown
		}
	}
}

// Add implements workqueue.TypedInterface.
func (q *Queue) Add(item reconcile.Request) { q.AddFrom(Own, item) }

// AddFrom adds an item that one origin made dirty.
func (q *Queue) AddFrom(from Origin, item reconcile.Request) {
	waits := q.order.add(item, from)
	if (from == Derived || q.patient) && !waits { // else it is reconciled later anyway
		time.AfterFunc(settle, func() {
			if q.order.isAdded(item, from) {
				q.TypedRateLimitingInterface.Add(item)
			}
		})
		return
	}
	q.TypedRateLimitingInterface.Add(item)
}

// Changed adds an item that one origin changed, at once or, if it changes often, soon.
func (q *Queue) Changed(from Origin, item reconcile.Request) {
	if q.counts(change{from, item}) {
		q.AddFrom(from, item)
	}
}

// counts reports whether a change counts at once. If not, it is repeated when its interval ends.
func (q *Queue) counts(c change) bool {
	o, atOnce := q.order, q.atOnce
	o.mu.Lock()
	defer o.mu.Unlock()
	if left := 2 * (1 - o.shareUsed(c.from)); left < 1 {
		atOnce = max(1, int(left*float64(atOnce)))
	}
	if o.changes[c] == nil {
		o.changes[c] = &changes{}
		time.AfterFunc(interval, func() { q.over(c) })
	}
	seen := o.changes[c]
	if seen.counted < atOnce {
		seen.counted++
		return true
	}
	if seen.more.IsZero() {
		seen.more = time.Now()
	}
	return false
}

// over ends the interval of a change.
func (q *Queue) over(c change) {
	q.order.mu.Lock()
	more := q.order.changes[c].more
	delete(q.order.changes, c)
	if !more.IsZero() {
		q.order.see(c.item, c.from, more)
	}
	q.order.mu.Unlock()
	if !more.IsZero() {
		q.Changed(c.from, c.item)
	}
}

// Standing says of an origin whether it used more than its share, and whether it is held: an item
// is being reconciled for others, and some of its changes of that do not count yet. The item is
// added for these when they do. So what is written for others does not become more because one
// changes something without pause.
func (q *Queue) Standing(item reconcile.Request, from Origin) (usedMore, held bool) {
	q.order.mu.Lock()
	defer q.order.mu.Unlock()
	now, c := q.order.taken[item], q.order.changes[change{from, item}]
	return q.order.overShare(from), now != nil && !now.origins.Has(from) && c != nil && !c.more.IsZero()
}

// IsAwaited reports whether an item that is being reconciled was changed meanwhile by a user, or
// by a member that used less than from, who wait until it is done.
func (q *Queue) IsAwaited(item reconcile.Request, from Origin) bool {
	q.order.mu.Lock()
	defer q.order.mu.Unlock()
	now := time.Now()
	return slices.ContainsFunc(q.order.added[item].UnsortedList(), func(other Origin) bool {
		return other == Own || isMember(other) && q.order.lane(other).usedAt(now) < q.order.lane(from).usedAt(now)
	})
}

// Unfinished is how many items wait or are being reconciled. Len is zero if nothing that
// waits may be taken now.
func (q *Queue) Unfinished() int {
	q.order.mu.Lock()
	defer q.order.mu.Unlock()
	return len(q.order.waiting) + len(q.order.taken)
}

// CaughtUp is closed once everything was reconciled that the first list of a Source had.
func (q *Queue) CaughtUp() <-chan struct{} { return q.order.caughtUp }

// Pay has an origin pay for a part of the time that an item that is being reconciled takes.
// Those who made it dirty share the rest.
func (q *Queue) Pay(item reconcile.Request, from Origin, spent time.Duration) {
	q.order.mu.Lock()
	defer q.order.mu.Unlock()
	if now := q.order.taken[item]; now != nil {
		now.paid += spent
		q.order.charge(from, time.Now(), spent)
	}
}

// Settle says that everything is done for the changes that made an item dirty which is being
// reconciled. It returns when the first of them was seen that a user or a member made; zero if
// none did. They wait no longer, even if the item is added again.
func (q *Queue) Settle(item reconcile.Request) (seen time.Time) {
	q.order.mu.Lock()
	defer q.order.mu.Unlock()
	if now := q.order.taken[item]; now != nil {
		seen, now.seen = now.seen, time.Time{}
	}
	return seen
}

// AddAfter implements workqueue.TypedDelayingInterface.
func (q *Queue) AddAfter(item reconcile.Request, after time.Duration) {
	q.order.addAgain(item)
	q.TypedRateLimitingInterface.AddAfter(item, after)
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface.
func (q *Queue) AddRateLimited(item reconcile.Request) {
	q.order.addAgain(item)
	q.TypedRateLimitingInterface.AddRateLimited(item)
}

// Done implements workqueue.TypedInterface.
func (q *Queue) Done(item reconcile.Request) {
	from, rest := q.order.done(item)
	q.TypedRateLimitingInterface.Done(item)
	if rest > 0 {
		time.Sleep(rest)
		q.order.rested(from)
	}
}
