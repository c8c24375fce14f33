// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

var workerSeconds = promauto.With(metrics.Registry).NewCounterVec(prometheus.CounterOpts{
	Name: "comity_sync_worker_seconds_total",
	Help: "Time that workers spent on what a peer changed.",
}, []string{"peer"})

// Origin is who made an item of a Queue dirty: the id of a member, or one of the constants,
// which no cluster has as its id.
type Origin string

const (
	// Own is a change that a user of this cluster made. It is served first.
	Own Origin = "/own"
	// Derived is a change of an object that Comity writes here, mostly by Comity itself. It
	// is served like that of one more member, and after a moment.
	Derived Origin = "/derived"
	// Listed is everything that is reconciled only because all is. It is served last.
	Listed Origin = "/listed"
)

const (
	// period is how far back the time that an origin used counts.
	period = time.Second
	// idle is what an origin may have used of the last period and be forgotten.
	idle = time.Millisecond
	// floor is what an origin may use of the last period in any case: a quarter of one worker. A
	// member that changes something now and then is not held back since another one does less.
	floor = period / 4
	// restFactor is how long a worker rests, in terms of how long its item took, and maxRest
	// how long it rests at most.
	restFactor = 12
	maxRest    = 500 * time.Millisecond
)

// order is the order in which a workqueue serves its items: it implements workqueue.Queue.
// The next item is one of the origin that used least time lately; what is being reconciled
// counts as long as its last item took. While another member has work too, one that used more
// than its share has one worker, which rests after each item, because others wait for the API
// server as well. All such members together have half of the workers. What an origin may use in
// any case, see floor, is never more than its share.
//
// It forgets an origin that used nothing lately and waits for nothing. All methods may be
// called from any goroutine.
type order struct {
	workers int // of the queue

	mu sync.Mutex
	// origins of the items that were added since they were taken last, and of those that wait.
	added, waiting map[reconcile.Request]sets.Set[Origin]
	taken          map[reconcile.Request]*taken
	lanes          map[Origin]*lane
	// seen is when a user or a member first changed an item that was not taken since.
	seen map[reconcile.Request]time.Time
	// caughtUp is closed when nothing waits and nothing is taken after listed was set.
	listed   bool
	caughtUp chan struct{}
	// changes are those of each origin and item since the interval began.
	changes map[change]*changes
}

// taken is an item that is being reconciled.
type taken struct {
	from    Origin // whose turn it was
	origins sets.Set[Origin]
	begun   time.Time
	paid    time.Duration // by others
	seen    time.Time     // zero once it is settled
}

// lane is what waits for one origin, and what it used.
type lane struct {
	items []reconcile.Request // in order; some are not waiting any more
	has   sets.Set[reconcile.Request]
	busy  int           // workers that reconcile
	rests int           // workers that rest; one at most
	last  time.Duration // that an item took
	used  time.Duration // in the period before at
	at    time.Time
}

func newOrder(workers int) *order {
	return &order{
		workers: workers,
		lanes:   map[Origin]*lane{}, taken: map[reconcile.Request]*taken{},
		added: map[reconcile.Request]sets.Set[Origin]{}, waiting: map[reconcile.Request]sets.Set[Origin]{},
		seen: map[reconcile.Request]time.Time{}, caughtUp: make(chan struct{}), changes: map[change]*changes{},
	}
}

// firstListed says that everything was added that the first list has of the Source, of which
// a queue has one.
func (o *order) firstListed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.listed = true
	o.catchUp()
}

// catchUp closes caughtUp if it is time. It needs mu.
func (o *order) catchUp() {
	if o.listed && len(o.waiting)+len(o.taken) == 0 {
		o.listed = false // once
		close(o.caughtUp)
	}
}

// add notes who makes an item dirty, before it is added to the workqueue. It reports whether
// the item waits for a worker already.
func (o *order) add(item reconcile.Request, origin Origin) (waits bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.see(item, origin, time.Now())
	if o.added[item] == nil {
		o.added[item] = sets.New[Origin]()
	}
	o.added[item].Insert(origin)
	return o.waiting[item] != nil
}

// isAdded reports whether an item was added for an origin, and does not wait for a worker yet.
func (o *order) isAdded(item reconcile.Request, origin Origin) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.added[item].Has(origin)
}

// see notes when a user or a member changed an item that is added. It needs mu.
func (o *order) see(item reconcile.Request, origin Origin, at time.Time) {
	if first := o.seen[item]; somebodyWaits(origin) && (first.IsZero() || at.Before(first)) {
		o.seen[item] = at
	}
}

// addAgain notes that an item that is being reconciled will be added for the same origins.
func (o *order) addAgain(item reconcile.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := o.taken[item]; now != nil {
		o.added[item] = now.origins.Union(o.added[item])
	}
}

// Push implements workqueue.Queue.
func (o *order) Push(item reconcile.Request) { o.Touch(item) }

// Touch implements workqueue.Queue.
func (o *order) Touch(item reconcile.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	origins := o.added[item]
	delete(o.added, item)
	if o.waiting[item] == nil {
		o.waiting[item] = sets.New[Origin]()
		if len(origins) == 0 {
			origins = sets.New(Derived) // added after a while, and meanwhile by others
		}
	}
	for _, origin := range sets.List(origins.Difference(o.waiting[item])) {
		o.waiting[item].Insert(origin)
		l := o.lane(origin)
		if !l.has.Has(item) {
			l.has.Insert(item)
			l.items = append(l.items, item)
		}
	}
}

// Len implements workqueue.Queue: how many items wait, or zero if none can be taken now.
// An item of an origin with enough workers can be taken once one of these ends, by that
// worker: no item waits for an event that does not come.
func (o *order) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.ContainsFunc(o.waitingOrigins(), o.mayTake) {
		return len(o.waiting)
	}
	return 0
}

// Pop implements workqueue.Queue. Something must wait. It takes what Len said that can be
// taken, although the shares may be others by now.
func (o *order) Pop() reconcile.Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	from := slices.MinFunc(o.waitingOrigins(), o.compare)
	item := o.lanes[from].pop()
	o.lanes[from].busy++
	o.taken[item] = &taken{from: from, origins: o.waiting[item], begun: time.Now(), seen: o.seen[item]}
	delete(o.waiting, item)
	delete(o.seen, item)
	return item
}

// done ends the reconcile of an item. Those who made it dirty share what nobody paid. If done
// gives a rest, the worker is that of the origin until it calls rested.
func (o *order) done(item reconcile.Request) (from Origin, rest time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, was := time.Now(), o.taken[item]
	delete(o.taken, item)
	if again := o.added[item] != nil || o.waiting[item] != nil; again && !was.seen.IsZero() {
		o.seen[item] = was.seen
	}
	took := now.Sub(was.begun)
	for origin := range was.origins {
		o.charge(origin, now, max(0, took-was.paid)/time.Duration(was.origins.Len()))
	}
	l := o.lanes[was.from]
	l.busy, l.last = l.busy-1, took
	if l.rests == 0 && took > 0 && o.overShare(was.from) { // of several that end together, one rests
		l.rests, rest = 1, min(restFactor*took, maxRest)
	}
	o.forget()
	o.catchUp()
	return was.from, rest
}

// rested ends the rest of a worker.
func (o *order) rested(from Origin) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lanes[from].rests = 0
	o.forget()
}

// forget drops the lanes that nothing needs. It needs mu.
func (o *order) forget() {
	now := time.Now()
	maps.DeleteFunc(o.lanes, func(_ Origin, l *lane) bool { return len(l.items)+l.busy+l.rests == 0 && l.usedAt(now) < idle })
}

// charge has an origin pay. It needs mu.
func (o *order) charge(origin Origin, now time.Time, spent time.Duration) {
	l := o.lane(origin)
	l.used, l.at = l.usedAt(now)+spent, now
	if isMember(origin) {
		workerSeconds.WithLabelValues(string(origin)).Add(spent.Seconds())
	}
}

// lane needs mu.
func (o *order) lane(origin Origin) *lane {
	if o.lanes[origin] == nil {
		o.lanes[origin] = &lane{has: sets.New[reconcile.Request]()}
	}
	return o.lanes[origin]
}

// waitingOrigins are those for which an item waits. It needs mu.
func (o *order) waitingOrigins() []Origin {
	var out []Origin
	for origin, l := range o.lanes {
		if l.waits(o.waiting, origin) {
			out = append(out, origin)
		}
	}
	return out
}

// mayTake reports whether an origin may have one more worker. It needs mu.
func (o *order) mayTake(origin Origin) bool {
	if !o.overShare(origin) {
		return true
	}
	busy := 0
	for other, l := range o.lanes {
		if l.busy+l.rests > 0 && o.overShare(other) {
			busy += l.busy + l.rests
		}
	}
	l := o.lanes[origin]
	return l.busy+l.rests == 0 && busy < max(1, o.workers/2)
}

// overShare reports whether a member used more than its share. It needs mu.
func (o *order) overShare(origin Origin) bool { return o.shareUsed(origin) > 1 }

// shareUsed is how much a member used of its share of what all members and users of this cluster
// did lately; zero while only one did something. It needs mu.
func (o *order) shareUsed(origin Origin) float64 {
	if !isMember(origin) {
		return 0
	}
	now, members, all := time.Now(), 0, time.Duration(0)
	for other, l := range o.lanes {
		if used := l.expects(now); somebodyWaits(other) && used >= idle {
			members++
			all += used
		}
	}
	if members < 2 {
		return 0
	}
	return float64(o.lane(origin).expects(now)) / float64(max(floor, all/time.Duration(members)))
}

func isMember(origin Origin) bool { return origin[0] != '/' }

// somebodyWaits reports whether an origin is a member or the users of this cluster.
func somebodyWaits(origin Origin) bool { return origin == Own || isMember(origin) }

// compare says which of two origins comes first: Own, then the one that used least, and
// last Listed and those that have their share of the workers. It needs mu.
func (o *order) compare(a, b Origin) int {
	rank := func(origin Origin) time.Duration {
		switch {
		case origin == Own:
			return -1
		case origin == Listed, !o.mayTake(origin):
			return math.MaxInt64
		}
		return o.lanes[origin].expects(time.Now())
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
}

func (l *lane) usedAt(now time.Time) time.Duration {
	return time.Duration(float64(l.used) * math.Exp(-float64(now.Sub(l.at))/float64(period)))
}

// expects is usedAt with what is being reconciled, each item as long as the last one. Else a
// member could take all workers at a moment at which it is within its share.
func (l *lane) expects(now time.Time) time.Duration {
	return l.usedAt(now) + time.Duration(l.busy)*l.last
}

// waits reports whether an item waits for the origin of the lane. It drops what was taken
// for another one.
func (l *lane) waits(waiting map[reconcile.Request]sets.Set[Origin], origin Origin) bool {
	for len(l.items) > 0 && !waiting[l.items[0]].Has(origin) {
		l.pop()
	}
	return len(l.items) > 0
}

// pop takes the first item.
func (l *lane) pop() reconcile.Request {
	item := l.items[0]
	l.has.Delete(item)
	l.items = l.items[1:]
	return item
}
