// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package deletionguard holds back deletions that look like an accident.
//
// It takes which exports of one peer exist and which disappeared, with the time of
// each observation; it gives the ones that are held: too many disappeared at once,
// so what was imported from them is kept until they return, an administrator
// confirms the deletion, or the hold expires. It is kept apart because it is pure:
// no clock, no client, no peer; the caller passes the time.
package deletionguard

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// window is the time within which deletions count together.
	window = time.Minute
	// minBudget and budgetShare are how many exports may disappear within a window:
	// minBudget, or one in budgetShare, whichever is more.
	minBudget   = 10
	budgetShare = 4
	// settleTime is how long no further export may disappear before NewHolds counts
	// them, and maxSettleTime how long that may be put off.
	settleTime    = 2 * time.Second
	maxSettleTime = 10 * time.Second
)

// Hold is one held deletion.
type Hold struct {
	// Since is when the export disappeared, Until when the hold expires; whole seconds.
	Since, Until time.Time
	// Budget is how many exports were allowed to disappear at once, Of how many there
	// were. Both are those of the first moment, so that a hold never changes.
	Budget, Of int
}

// Guard follows the exports of one peer. All methods may be called from any
// goroutine.
type Guard struct {
	holdTime time.Duration

	mu      sync.Mutex
	present map[types.NamespacedName]struct{}
	// deleted are the deletions within the window that were let through, and when,
	// except those that a new export made up for.
	deleted   map[types.NamespacedName]time.Time
	held      map[types.NamespacedName]Hold
	confirmed time.Time // as given to Confirm

	firstHold, lastHold time.Time // of what is held now
	reported            bool      // NewHolds has returned what is held now
}

// New returns a Guard that holds a deletion for holdTime.
func New(holdTime time.Duration) *Guard {
	return &Guard{
		holdTime: holdTime, present: map[types.NamespacedName]struct{}{},
		deleted: map[types.NamespacedName]time.Time{}, held: map[types.NamespacedName]Hold{},
	}
}

// Present records exports that exist, and ends their holds. A new export makes up
// for the latest deletion: namespaces that are created and deleted all the time,
// as by tests, are no accident.
func (g *Guard) Present(keys ...types.NamespacedName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, key := range keys {
		_, present := g.present[key]
		_, deleted := g.deleted[key]
		_, held := g.held[key]
		if !present && !deleted && !held {
			g.dropLatestDeletion()
		}
		g.present[key] = struct{}{}
		delete(g.deleted, key)
		delete(g.held, key)
	}
	g.resetReported()
}

// dropLatestDeletion needs mu.
func (g *Guard) dropLatestDeletion() {
	var latest types.NamespacedName
	for key, when := range g.deleted {
		if when.After(g.deleted[latest]) {
			latest = key
		}
	}
	delete(g.deleted, latest)
}

// Absent records that one export does not exist. It has no effect on an export
// that was not Present since it was last Absent.
func (g *Guard) Absent(key types.NamespacedName, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, present := g.present[key]; present {
		g.decide([]types.NamespacedName{key}, now)
	}
}

// Retain records a complete list: every known export for which present is false
// disappeared at once, and all of them are held or none. An export that is in the
// list and not known yet is recorded by Present, once it can be read.
func (g *Guard) Retain(present func(types.NamespacedName) bool, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var absent []types.NamespacedName
	for key := range g.present {
		if !present(key) {
			absent = append(absent, key)
		}
	}
	if len(absent) > 0 {
		g.decide(absent, now)
	}
}

// decide lets all of these deletions through, or holds all of them. It needs mu.
func (g *Guard) decide(absent []types.NamespacedName, now time.Time) {
	maps.DeleteFunc(g.deleted, func(_ types.NamespacedName, when time.Time) bool { return now.Sub(when) >= window })
	of := len(g.present) + len(g.deleted) + len(g.held)
	budget := max(minBudget, of/budgetShare)
	// Held deletions use up the budget as long as they are held: until an accident
	// is over, further deletions are part of it.
	fits := len(g.deleted)+len(g.held)+len(absent) <= budget
	since := now.UTC().Truncate(time.Second)
	for _, key := range absent {
		delete(g.present, key)
		switch {
		case !g.confirmed.Before(since):
		case fits:
			g.deleted[key] = now
		default:
			if len(g.held) == 0 {
				g.firstHold = now
			}
			g.held[key], g.lastHold = Hold{Since: since, Until: since.Add(g.holdTime), Budget: budget, Of: of}, now
		}
	}
}

// Held returns the hold of key, if there is one.
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

// Expire ends the holds that have lasted long enough, and lists them.
func (g *Guard) Expire(now time.Time) []types.NamespacedName {
	return g.release(func(h Hold) bool { return !now.Before(h.Until) })
}

// Confirm ends the holds of exports that disappeared up to then, and lists them.
// Deletions up to then that were not held no longer count. A time in the future
// confirms in advance; the zero time confirms nothing.
func (g *Guard) Confirm(then time.Time) []types.NamespacedName {
	g.mu.Lock()
	g.confirmed = then
	maps.DeleteFunc(g.deleted, func(_ types.NamespacedName, when time.Time) bool { return !when.After(then) })
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
	g.resetReported()
	return out
}

// resetReported needs mu.
func (g *Guard) resetReported() {
	if len(g.held) == 0 {
		g.reported = false
	}
}

// NewHolds is true once for each accident, after settleTime: it returns how many
// exports are held, and the first of the holds.
func (g *Guard) NewHolds(now time.Time) (held int, first Hold, isNew bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.held) == 0 || g.reported || (now.Sub(g.lastHold) < settleTime && now.Sub(g.firstHold) < maxSettleTime) {
		return 0, Hold{}, false
	}
	g.reported = true
	for _, h := range g.held {
		if first.Since.IsZero() || h.Since.Before(first.Since) {
			first = h
		}
	}
	return len(g.held), first, true
}
