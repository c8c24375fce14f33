// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
	"github.com/comity-mcs/comity/sync/remote/budget"
)

// limitedFor is how long an import has the problem LimitExceeded after the limit was
// reached last, so that the condition does not flap.
const limitedFor = time.Minute

// sourceLimiter limits how often the slices of one cluster are written to one import, to
// budget.ChangesPerSecond, so that a cluster whose endpoints flap, or which changes them
// on purpose, takes no writes from the others. The first changes pass at once. Then changes
// coalesce: those of that cluster wait, and the last state is written. The slices of other
// clusters, the Service and the ServiceImport never wait.
//
// A change of many slices is written in batches of budget.WriteBatch, each in a reconcile
// of its own, so that the changes of other clusters are written in between.
type sourceLimiter struct {
	now     func() time.Time
	self    model.ClusterID
	delayed *prometheus.CounterVec

	mu      sync.Mutex
	sources map[types.NamespacedName]map[model.ClusterID]*sourceRateState
	size    int
	sweepAt int // the size at which idle entries are dropped
}

// sourceRateState is what is remembered of one cluster and one import.
type sourceRateState struct {
	// changes and writes are the tokens for changes, and for each slice.
	changes, writes *rate.Limiter
	// paid is how many actions may still be made of the change that was charged last.
	paid int
	// more is true if the last batch left out actions, and last the end of that batch.
	more bool
	last position
	// limited is when a change had to wait last; zero if none had to.
	limited time.Time
	// next is when the changes that wait may be made; zero if none wait.
	next time.Time
}

// position is that of an action among those of its source: a plan makes deletions last,
// and each kind in the order of the names.
type position struct {
	deletes bool
	name    string
}

func positionOf(a plan.Action) position { return position{a.Verb == plan.Delete, a.Object.GetName()} }

func (p position) before(other position) bool {
	if p.deletes != other.deletes {
		return other.deletes
	}
	return p.name < other.name
}

func newSourceLimiter(self model.ClusterID, now func() time.Time, registry prometheus.Registerer) *sourceLimiter {
	return &sourceLimiter{
		now: now, self: self, sources: map[types.NamespacedName]map[model.ClusterID]*sourceRateState{}, sweepAt: sweepSize,
		delayed: promauto.With(registry).NewCounterVec(prometheus.CounterOpts{
			Name: "comity_sync_changes_delayed_total",
			Help: "Changes of a peer's endpoints that were written later, because the peer changes them too often.",
		}, []string{"peer"}),
	}
}

// allowed leaves out the actions on slices of clusters that changed them too often, those
// beyond a batch, and what must not be done before these. This cluster's own slices never
// wait.
func (l *sourceLimiter) allowed(key types.NamespacedName, actions []plan.Action) []plan.Action {
	of := map[model.ClusterID][]plan.Action{}
	for _, a := range actions {
		if a.Source != "" && a.Source != l.self {
			of[a.Source] = append(of[a.Source], a)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle(key, of)
	left := map[model.ClusterID]map[position]bool{}
	for source, all := range of {
		left[source] = l.take(key, source, all)
	}
	incomplete := slices.ContainsFunc(actions, func(a plan.Action) bool { return left[a.Source][positionOf(a)] })
	if !incomplete {
		return actions
	}
	return slices.DeleteFunc(slices.Clone(actions), func(a plan.Action) bool { return a.AfterAll || left[a.Source][positionOf(a)] })
}

// idle ends the batches of the sources of which nothing is outstanding. It needs mu.
func (l *sourceLimiter) idle(key types.NamespacedName, outstanding map[model.ClusterID][]plan.Action) {
	for source, state := range l.sources[key] {
		if len(outstanding[source]) == 0 {
			state.more, state.paid = false, 0
		}
	}
}

// withoutSources leaves out the actions on slices of clusters that wait, and what must
// not be done before these.
func withoutSources(actions []plan.Action, waiting map[model.ClusterID]bool) []plan.Action {
	if len(waiting) == 0 {
		return actions
	}
	return slices.DeleteFunc(slices.Clone(actions), func(a plan.Action) bool { return waiting[a.Source] || a.AfterAll })
}

// take returns which of the actions of a source may not be made now. It needs mu.
func (l *sourceLimiter) take(key types.NamespacedName, source model.ClusterID, actions []plan.Action) (left map[position]bool) {
	state := l.state(key, source)
	batch := state.batch(actions)
	left = map[position]bool{}
	if !l.charge(state, actions, batch) {
		l.delayed.WithLabelValues(string(source)).Inc()
		batch = nil
	} else if state.more {
		state.last = positionOf(batch[len(batch)-1])
	}
	for _, a := range actions {
		left[positionOf(a)] = true
	}
	for _, a := range batch {
		delete(left, positionOf(a))
	}
	return left
}

// batch is what to make of the actions now: those after the last batch, then the first
// ones, so that actions that are refused do not keep others from being made.
func (s *sourceRateState) batch(actions []plan.Action) []plan.Action {
	if len(actions) <= budget.WriteBatch {
		return actions
	}
	first := slices.IndexFunc(actions, func(a plan.Action) bool { return s.last.before(positionOf(a)) })
	if !s.more || first < 0 {
		first = 0
	}
	return slices.Concat(actions[first:], actions[:first])[:budget.WriteBatch]
}

// charge takes the tokens for a batch of the actions, and for the change that they are
// unless an earlier batch did. It is false if that has to wait. Deletions cost no token of
// writes: there are no more of them than there were creations. It needs mu.
func (l *sourceLimiter) charge(state *sourceRateState, actions, batch []plan.Action) bool {
	now, cost, applied := l.now(), 0, 0
	for _, a := range batch {
		if a.Verb != plan.Delete {
			applied++
		}
	}
	if state.paid == 0 {
		for _, a := range actions {
			cost += bytesOf(a)
		}
		cost = budget.ChangeCost(cost)
	}
	change, writes := state.changes.ReserveN(now, cost), state.writes.ReserveN(now, applied)
	if delay := max(change.DelayFrom(now), writes.DelayFrom(now)); delay > 0 {
		change.CancelAt(now)
		writes.CancelAt(now)
		state.limited, state.next = now, now.Add(delay)
		return false
	}
	if state.paid == 0 {
		state.paid = len(actions)
	}
	state.next = time.Time{}
	state.paid = max(0, state.paid-len(batch))
	if state.more = len(batch) < len(actions); !state.more {
		state.paid = 0
	}
	return true
}

// limited are the problems of an import of which a cluster reached the limit lately,
// sorted by cluster, and how soon to reconcile it again; 0 if there are none.
func (l *sourceLimiter) limited(key types.NamespacedName) (problems []model.Problem, again time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for source, state := range l.sources[key] {
		if state.more && state.next.IsZero() {
			again = time.Millisecond // behind what is queued
		}
		until := state.limited.Add(limitedFor)
		if state.limited.IsZero() || !now.Before(until) {
			continue
		}
		problems = append(problems, model.Problem{Reason: model.ReasonLimitExceeded, Cluster: source, Message: fmt.Sprintf(
			"cluster %s changes its endpoints of %s more often than %d times a second (one change for each %d bytes), or more than %d EndpointSlices a second, "+
				"so that they are written here later; find out why they change so often in cluster %s",
			source, key, budget.ChangesPerSecond, budget.ChangeBytes, budget.WritesPerSecond, source)})
		if !state.next.IsZero() {
			until = state.next
		}
		again = earlier(again, max(until.Sub(now), time.Millisecond))
	}
	slices.SortFunc(problems, func(a, b model.Problem) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return problems, again
}

// state returns what is remembered of one cluster and one import. It needs mu.
func (l *sourceLimiter) state(key types.NamespacedName, source model.ClusterID) *sourceRateState {
	if state := l.sources[key][source]; state != nil {
		return state
	}
	if l.size >= l.sweepAt {
		l.sweep()
	}
	if l.sources[key] == nil {
		l.sources[key] = map[model.ClusterID]*sourceRateState{}
	}
	state := &sourceRateState{changes: rate.NewLimiter(budget.ChangesPerSecond, budget.ChangeBurst), writes: rate.NewLimiter(budget.WritesPerSecond, budget.WriteBurst)}
	l.sources[key][source] = state
	l.size++
	return state
}

// sweep drops entries that equal a new one. It needs mu.
func (l *sourceLimiter) sweep() {
	now := l.now()
	for key, sources := range l.sources {
		for source, state := range sources {
			if state.changes.TokensAt(now) >= budget.ChangeBurst && state.writes.TokensAt(now) >= budget.WriteBurst && now.Sub(state.limited) >= limitedFor {
				delete(sources, source)
				l.size--
			}
		}
		if len(sources) == 0 {
			delete(l.sources, key)
		}
	}
	l.sweepAt = max(sweepSize, 2*l.size)
}

// bytesOf is the size of what an action on a slice writes.
func bytesOf(a plan.Action) int {
	if slice, is := a.Object.(*discoveryv1.EndpointSlice); is {
		return slice.Size()
	}
	return 0 // a deletion
}
