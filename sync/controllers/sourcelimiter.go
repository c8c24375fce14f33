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

// maxSourceWrites is how many slices of one cluster one reconcile of an import writes.
// The next one follows at once; between them the changes of other clusters are written.
const maxSourceWrites = 50

// limitedFor is how long an import has the problem LimitExceeded after the limit was
// reached last, so that the condition does not flap.
const limitedFor = time.Minute

// sourceLimiter limits how often the slices of one cluster are written to one import, to
// budget.ChangesPerSecond, so that a cluster whose endpoints flap, or which changes them
// on purpose, takes no writes from the others. The first changes pass at once. Then changes
// coalesce: those of that cluster wait, and the last state is written. The slices of other
// clusters, the Service and the ServiceImport never wait.
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
	tokens *rate.Limiter
	// limited is when a change had to wait last; zero if none had to.
	limited time.Time
	// next is when the changes that wait may be made; zero if none wait.
	next time.Time
	// more is true if slices are left that one reconcile was too small for.
	more bool
}

// sourceWrites are the slices of one cluster that a plan creates or updates.
type sourceWrites struct{ slices, bytes int }

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
// on more slices of a cluster than one reconcile writes, and what must not be done before
// these. This cluster's own slices never wait, and deletions only if the cluster does.
func (l *sourceLimiter) allowed(key types.NamespacedName, actions []plan.Action) []plan.Action {
	actions, writes, more := l.first(actions)
	if len(writes) == 0 {
		return actions
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := map[model.ClusterID]bool{}
	for source, of := range writes {
		l.state(key, source).more = more[source]
		if !l.take(key, source, budget.ChangeCost(of.slices, of.bytes)) {
			waiting[source] = true
			l.delayed.WithLabelValues(string(source)).Inc()
		}
	}
	return withoutSources(actions, waiting)
}

// first leaves out the writes of each other cluster after the first maxSourceWrites, and
// what must not be done before them. It returns what is left of each, and which have more.
func (l *sourceLimiter) first(actions []plan.Action) ([]plan.Action, map[model.ClusterID]sourceWrites, map[model.ClusterID]bool) {
	writes, more := map[model.ClusterID]sourceWrites{}, map[model.ClusterID]bool{}
	var kept []plan.Action
	for _, a := range actions {
		switch of := writes[a.Source]; {
		case a.AfterAll && len(more) > 0:
			continue
		case a.Source == "" || a.Source == l.self:
		case a.Verb == plan.Delete:
			writes[a.Source] = of
		case of.slices == maxSourceWrites:
			more[a.Source] = true
			continue
		default:
			writes[a.Source] = sourceWrites{of.slices + 1, of.bytes + bytesOf(a)}
		}
		kept = append(kept, a)
	}
	return kept, writes, more
}

// withoutSources leaves out the actions on slices of clusters that wait, and what must
// not be done before these.
func withoutSources(actions []plan.Action, waiting map[model.ClusterID]bool) []plan.Action {
	if len(waiting) == 0 {
		return actions
	}
	return slices.DeleteFunc(slices.Clone(actions), func(a plan.Action) bool { return waiting[a.Source] || a.AfterAll })
}

// take reports whether a change that costs so many tokens may be made now. It needs mu.
func (l *sourceLimiter) take(key types.NamespacedName, source model.ClusterID, cost int) bool {
	now, state := l.now(), l.state(key, source)
	reserved := state.tokens.ReserveN(now, cost)
	delay := reserved.DelayFrom(now)
	if delay == 0 {
		state.next = time.Time{}
		return true
	}
	reserved.CancelAt(now)
	state.limited, state.next = now, now.Add(delay)
	return false
}

// limited are the problems of an import of which a cluster reached the limit lately,
// sorted by cluster, and how soon to reconcile it again; 0 if there are none.
func (l *sourceLimiter) limited(key types.NamespacedName) (problems []model.Problem, again time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for source, state := range l.sources[key] {
		if state.more && state.next.IsZero() {
			again = earlier(again, time.Millisecond)
		}
		until := state.limited.Add(limitedFor)
		if state.limited.IsZero() || !now.Before(until) {
			continue
		}
		problems = append(problems, model.Problem{Reason: model.ReasonLimitExceeded, Cluster: source, Message: fmt.Sprintf(
			"cluster %s changes its endpoints of %s more often than %d times a second (one change for each %d bytes), so that they are written here later; "+
				"find out why they change so often in cluster %s", source, key, budget.ChangesPerSecond, budget.ChangeBytes, source)})
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
	state := &sourceRateState{tokens: rate.NewLimiter(budget.ChangesPerSecond, budget.ChangeBurst)}
	l.sources[key][source] = state
	l.size++
	return state
}

// sweep drops entries that equal a new one. It needs mu.
func (l *sourceLimiter) sweep() {
	now := l.now()
	for key, sources := range l.sources {
		for source, state := range sources {
			if state.tokens.TokensAt(now) >= budget.ChangeBurst && now.Sub(state.limited) >= limitedFor && !state.more {
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
