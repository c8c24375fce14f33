// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// What makes a contest, and how it is answered.
const (
	// contestLimit is how often, within contestWindow, an object is put right
	// at once; a user who edits by hand is never that fast.
	contestLimit  = 5
	contestWindow = time.Minute
	// firstTruce and lastTruce bound the time for which a contested object is
	// left as somebody else made it. It doubles each time.
	firstTruce = 10 * time.Second
	lastTruce  = 5 * time.Minute
)

// Object is one derived object of an import, in the import's namespace.
type Object struct{ Kind, Name string }

// Dispute is an object that somebody else keeps changing.
type Dispute struct {
	Object Object
	// By is the field manager that changed it last; empty if not known.
	By string
}

// Contest knows which objects were applied over and over although what Comity
// wants of them stayed the same: somebody else changes them back. To answer each
// change at once would be a war that loads both sides and the API server.
type Contest struct {
	now func() time.Time

	mu    sync.Mutex
	wars  map[types.NamespacedName]map[Object]*war // by import
	size  int
	sweep int // the size at which what is over is looked for
}

type war struct {
	digest string      // what was applied last
	before string      // the version of the object that this replaced
	again  []time.Time // when it was applied once more, the last few
	truce  time.Duration
	last   time.Time
	by     string
}

// NewContest returns a Contest without any dispute that reads the time from now.
func NewContest(now func() time.Time) *Contest {
	return &Contest{now: now, wars: map[types.NamespacedName]map[Object]*war{}, sweep: 1024}
}

// Wait is how long to leave an object as it is instead of applying digest, a
// digest of all that is wanted of it. What was not applied before never waits.
func (c *Contest) Wait(owner types.NamespacedName, object Object, digest string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.wars[owner][object]
	if w == nil || w.digest != digest {
		return 0
	}
	return max(0, w.last.Add(w.truce).Sub(c.now()))
}

// Applied notes that digest was applied to an object of which version before
// existed ("" if it was created), and which by had changed last. The same version
// twice is a cache that lags behind, not a change of somebody's.
func (c *Contest) Applied(owner types.NamespacedName, object Object, digest, before, by string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	w := c.wars[owner][object]
	switch {
	case w == nil || w.digest != digest || w.over(now):
		c.put(owner, object, &war{digest: digest, before: before, last: now})
		return
	case before != "" && before == w.before:
		return
	}
	w.before, w.last, w.by = before, now, by
	w.again = append(slices.DeleteFunc(w.again, func(t time.Time) bool { return now.Sub(t) > contestWindow }), now)
	if w.truce > 0 || len(w.again) > contestLimit {
		w.truce = min(max(2*w.truce, firstTruce), lastTruce)
		w.again = nil // from here on the truce counts
	}
}

// Forget drops an object that Comity itself deleted.
func (c *Contest) Forget(owner types.NamespacedName, object Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(owner, object)
}

// Disputes are the contested objects of an import, sorted, and how soon that
// may be different; 0 if there are none.
func (c *Contest) Disputes(owner types.NamespacedName) (disputes []Dispute, again time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	for object, w := range c.wars[owner] {
		if w.truce == 0 || w.over(now) {
			continue
		}
		disputes = append(disputes, Dispute{Object: object, By: w.by})
		next := w.last.Add(w.truce).Sub(now)
		if next <= 0 {
			next = w.end().Sub(now)
		}
		if again == 0 || next < again {
			again = next
		}
	}
	slices.SortFunc(disputes, func(a, b Dispute) int {
		return cmp.Or(cmp.Compare(a.Object.Kind, b.Object.Kind), cmp.Compare(a.Object.Name, b.Object.Name))
	})
	return disputes, again
}

// end is when the object has been left alone for long enough.
func (w *war) end() time.Time { return w.last.Add(w.truce + contestWindow) }

func (w *war) over(now time.Time) bool { return !now.Before(w.end()) }

func (c *Contest) put(owner types.NamespacedName, object Object, w *war) {
	if c.size >= c.sweep {
		c.clean()
	}
	if c.wars[owner] == nil {
		c.wars[owner] = map[Object]*war{}
	}
	if c.wars[owner][object] == nil {
		c.size++
	}
	c.wars[owner][object] = w
}

func (c *Contest) drop(owner types.NamespacedName, object Object) {
	if c.wars[owner][object] == nil {
		return
	}
	c.size--
	delete(c.wars[owner], object)
	if len(c.wars[owner]) == 0 {
		delete(c.wars, owner)
	}
}

// clean drops what is over, so that memory is bounded by what was written lately.
func (c *Contest) clean() {
	now := c.now()
	for owner, objects := range c.wars {
		for object, w := range objects {
			if w.over(now) {
				c.drop(owner, object)
			}
		}
	}
	c.sweep = max(1024, 2*c.size)
}
