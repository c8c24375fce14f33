// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package deletionguard holds deletions that look like an accident.
//
// It takes which exports of one peer are seen and which vanished; it gives those
// that are held, so that what came of them is kept until they are back, an
// administrator confirms, or the hold is over. It knows no clock, no peer and no
// cause: many at once is all that it goes by. A process that starts anew has
// seen nothing yet, so it says of what is here that it is Present, and then what
// it finds instead.
package deletionguard

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// window is the time within which vanished exports count together.
	window = time.Minute
	// least and share are the budget: by so many may the exports become fewer
	// within a window, or one in so many, whichever is more.
	least = 10
	share = 4
	// settled is how long nothing more may vanish before the number is told,
	// and longest how long that may be put off.
	settled = 2 * time.Second
	longest = 10 * time.Second
)

// Hold is one held deletion.
type Hold struct {
	// Since is when the export vanished, Until when that is believed; whole seconds.
	Since, Until time.Time
	// Budget is how many may vanish at once, Of how many exports there were. They
	// are those of the first moment, so that a hold never changes.
	Budget, Of int
}

// Guard follows the exports of one peer. All methods may be called from any
// goroutine.
type Guard struct {
	lasts time.Duration

	mu        sync.Mutex
	known     map[types.NamespacedName]struct{}
	gone      map[types.NamespacedName]time.Time // believed, within the window, and not replaced
	held      map[types.NamespacedName]Hold
	confirmed time.Time

	first, last time.Time // of what is held now
	told        bool
}

// New returns a Guard that holds a deletion for so long.
func New(lasts time.Duration) *Guard {
	return &Guard{
		lasts: lasts, known: map[types.NamespacedName]struct{}{},
		gone: map[types.NamespacedName]time.Time{}, held: map[types.NamespacedName]Hold{},
	}
}

// Present notes exports that are there; one that was held is so no longer. One
// that is new takes the place of one that vanished: where exports come and go
// as fast, as with namespaces that are made for a test, nothing is an accident.
func (g *Guard) Present(keys ...types.NamespacedName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, key := range keys {
		_, known := g.known[key]
		_, gone := g.gone[key]
		_, held := g.held[key]
		if !known && !gone && !held {
			g.replace()
		}
		g.known[key] = struct{}{}
		delete(g.gone, key)
		delete(g.held, key)
	}
	g.reset()
}

// replace forgets what vanished last. It needs mu.
func (g *Guard) replace() {
	var last types.NamespacedName
	for key, when := range g.gone {
		if when.After(g.gone[last]) {
			last = key
		}
	}
	delete(g.gone, last)
}

// Absent notes that one export is not there. One that was not known to be, or
// that was judged before, changes nothing.
func (g *Guard) Absent(key types.NamespacedName, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.known[key]; known {
		g.judge([]types.NamespacedName{key}, now)
	}
}

// Retain notes what a complete list holds: all that it lacks vanished at once
// and is judged as a whole. What it holds beyond what is known is left to
// Present, for when it can be read.
func (g *Guard) Retain(present func(types.NamespacedName) bool, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var lacking []types.NamespacedName
	for key := range g.known {
		if !present(key) {
			lacking = append(lacking, key)
		}
	}
	if len(lacking) > 0 {
		g.judge(lacking, now)
	}
}

// judge believes that all of these are gone, or holds all of them.
func (g *Guard) judge(vanished []types.NamespacedName, now time.Time) {
	maps.DeleteFunc(g.gone, func(_ types.NamespacedName, when time.Time) bool { return now.Sub(when) >= window })
	of := len(g.known) + len(g.gone) + len(g.held)
	budget := max(least, of/share)
	// What is held counts as long as it is: while one accident is looked into,
	// more of the same is no news.
	fits := len(g.gone)+len(g.held)+len(vanished) <= budget
	since := now.UTC().Truncate(time.Second)
	for _, key := range vanished {
		delete(g.known, key)
		switch {
		case !g.confirmed.Before(since):
		case fits:
			g.gone[key] = now
		default:
			if len(g.held) == 0 {
				g.first = now
			}
			g.held[key], g.last = Hold{Since: since, Until: since.Add(g.lasts), Budget: budget, Of: of}, now
		}
	}
}

// Held is the hold of key, if there is one.
func (g *Guard) Held(key types.NamespacedName) (Hold, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	hold, held := g.held[key]
	return hold, held
}

// Keys lists what is held, in no order.
func (g *Guard) Keys() []types.NamespacedName {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.held))
}

// Expire ends the holds whose time is over, and lists them.
func (g *Guard) Expire(now time.Time) []types.NamespacedName {
	return g.release(func(h Hold) bool { return !now.Before(h.Until) })
}

// Confirm ends the holds of what vanished up to then, and lists them; what
// vanished unheld up to then was meant as well, and counts for nothing more. A
// time to come confirms beforehand; the zero time confirms nothing.
func (g *Guard) Confirm(then time.Time) []types.NamespacedName {
	g.mu.Lock()
	g.confirmed = then
	maps.DeleteFunc(g.gone, func(_ types.NamespacedName, when time.Time) bool { return !when.After(then) })
	g.mu.Unlock()
	return g.release(func(h Hold) bool { return !h.Since.After(then) })
}

func (g *Guard) release(over func(Hold) bool) (out []types.NamespacedName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, hold := range g.held {
		if over(hold) {
			delete(g.held, key)
			out = append(out, key)
		}
	}
	g.reset()
	return out
}

// reset ends the telling once nothing is held. It needs mu.
func (g *Guard) reset() {
	if len(g.held) == 0 {
		g.told = false
	}
}

// News is true once for each accident, as soon as its extent is known: how many
// are held, and the first of the holds.
func (g *Guard) News(now time.Time) (held int, hold Hold, news bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.held) == 0 || g.told || (now.Sub(g.last) < settled && now.Sub(g.first) < longest) {
		return 0, Hold{}, false
	}
	g.told = true
	for _, h := range g.held {
		if hold.Since.IsZero() || h.Since.Before(hold.Since) {
			hold = h
		}
	}
	return len(g.held), hold, true
}
