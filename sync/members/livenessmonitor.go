// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
)

// maxTick is how often peers are checked; with a short StaleAfter, more often.
const maxTick = time.Second

// livenessMonitor does what depends on time: it updates liveness, and which limits are exceeded.
type livenessMonitor struct{ set *Set }

// NeedLeaderElection is false: every replica reads the peers for itself.
func (livenessMonitor) NeedLeaderElection() bool { return false }

// Start checks all peers at each tick until ctx ends.
func (w livenessMonitor) Start(ctx context.Context) error {
	ticker := w.set.opts.Clock.NewTicker(min(maxTick, w.set.opts.StaleAfter/20))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			w.set.tick()
		}
	}
}

// tick checks all peers once.
func (s *Set) tick() {
	s.mu.Lock()
	now := s.opts.Clock.Now()
	// A process that was stopped, or got no CPU time, could not see a renewal.
	gap := now.Sub(s.lastTick)
	s.lastTick = now
	var alive, slowed []model.ClusterID
	for _, id := range slices.Sorted(maps.Keys(s.members)) {
		m := s.members[id]
		if gap > s.opts.StaleAfter/4 {
			m.heartbeat.tracker.Skip(gap)
		}
		if s.checkHeartbeat(m, now) {
			alive = append(alive, id)
		}
		if s.updateSlowed(m) {
			slowed = append(slowed, id)
		}
	}
	if len(alive)+len(slowed) > 0 {
		s.updateView()
	}
	s.mu.Unlock()
	for _, id := range alive {
		s.memberChanged(id)
	}
	for _, id := range slowed {
		s.statuses.Publish(statusChange{string(id), false})
	}
}

// checkHeartbeat updates the liveness of m, and reports whether it changed.
func (s *Set) checkHeartbeat(m *member, now time.Time) bool {
	p := &m.heartbeat
	// checkLease may only have been faster than the watch, so the watch is given a
	// moment before its connection is replaced. A watch that failed is restarted by
	// its informer, and needs no new connection, which would list everything.
	if !p.unseen.IsZero() && now.Sub(p.unseen) >= s.opts.StaleAfter/20 {
		if p.lastEvent.Before(p.unseen) && m.inUse() != nil && m.inUse().Watching() {
			s.reconnect(m, now)
		}
		p.unseen = time.Time{}
	}
	switch {
	case !p.tracker.Overdue(now):
		return false
	case m.inUse() == nil:
		return s.leaseOverdue(m, now, m.claim.refused)
	}
	if !p.requesting && now.Sub(p.requested) >= s.opts.StaleAfter/2 {
		s.checkLease(m, now)
	}
	// The Lease is checked before the peer becomes Stale; after that the result of
	// the last check counts.
	return p.tracker.Liveness().State != model.Connected && s.leaseOverdue(m, now, p.failure)
}

// checkLease reads the peer's Lease over a connection of its own, which works even
// where the watches of the present connection deliver nothing any more.
func (s *Set) checkLease(m *member, now time.Time) {
	m.heartbeat.requesting, m.heartbeat.requested = true, now
	config := m.inUse().Config()
	s.ending.Go(func() {
		renewal, failure := s.requestLease(s.ctx, m.id, s.opts.Self, config)
		s.leaseChecked(m, renewal, failure)
	})
}

// leaseChecked takes the result of checkLease.
func (s *Set) leaseChecked(m *member, renewal string, failure remote.Failure) {
	s.mu.Lock()
	p, now := &m.heartbeat, s.opts.Clock.Now()
	p.requesting = false
	if s.members[m.id] != m || m.inUse() == nil || s.ctx.Err() != nil {
		s.mu.Unlock()
		return
	}
	if problem, other := otherCluster(m); other {
		failure = problem
	}
	var changed bool
	switch first := p.renewal == ""; {
	case failure != remote.Failure{}:
		p.failure = failure
		changed = s.leaseOverdue(m, now, failure)
	case renewal == p.renewal || first:
		p.renewal, p.failure = renewal, remote.LeaseNotRenewed(m.id)
		changed = s.leaseOverdue(m, now, p.failure)
	default:
		p.renewal, p.unseen = renewal, now
		changed = s.leaseRenewed(m, now)
	}
	if changed {
		s.updateView()
	}
	s.mu.Unlock()
	if changed {
		s.memberChanged(m.id)
	}
}

// leaseRead is the LeaseRead hook: a watch delivered the Lease.
func (s *Set) leaseRead(c *remote.Connection, renewal string) {
	s.mu.Lock()
	m := s.of(c)
	if m == nil || !m.inUse().is(c) {
		s.mu.Unlock()
		return
	}
	if _, other := otherCluster(m); other {
		s.mu.Unlock()
		return
	}
	p, now := &m.heartbeat, s.opts.Clock.Now()
	p.lastEvent = now
	// The first Lease that is read proves nothing: it may be years old.
	renewed := p.renewal != "" && p.renewal != renewal
	p.renewal = renewal
	changed := renewed && s.leaseRenewed(m, now)
	if changed {
		s.updateView()
	}
	s.mu.Unlock()
	if changed {
		s.memberChanged(m.id)
	}
}

// otherCluster reports whether the server of the peer belongs to another cluster
// now, whose Lease does not count for the peer.
func otherCluster(m *member) (remote.Failure, bool) {
	l := m.inUse()
	if l == nil {
		return remote.Failure{}, false
	}
	problem, _ := l.State()
	return problem, problem.Reason == ReasonClusterIDReused
}

// leaseRenewed records a renewal, and reports whether the liveness changed.
func (s *Set) leaseRenewed(m *member, now time.Time) bool {
	before := m.heartbeat.tracker.Liveness()
	if !before.Seen {
		s.statuses.Publish(statusChange{string(m.id), true})
	}
	if !m.heartbeat.tracker.Renewed(now) {
		return false
	}
	if before.State != model.Connected {
		s.opts.Log.Info("the heartbeat of a peer is seen again", "cluster", m.id)
	}
	return true
}

// leaseOverdue makes the peer Stale or Lost if it is time, and reports whether the
// liveness changed.
func (s *Set) leaseOverdue(m *member, now time.Time, why remote.Failure) bool {
	if !m.heartbeat.tracker.Update(now, why.Reason, why.Message) {
		return false
	}
	state := m.heartbeat.tracker.Liveness().State.String()
	s.opts.Log.Info("the heartbeat of a peer is missing", "cluster", m.id, "state", state, "reason", why.Reason, "message", why.Message)
	return true
}

// reconnect replaces a connection whose watches deliver nothing although the peer
// renewed its Lease. The old one stays until the new one is synced. A connection
// that a change of the Secret has made is not replaced.
func (s *Set) reconnect(m *member, now time.Time) {
	dead := m.inUse()
	if m.next != nil && (!m.next.again || now.Sub(m.next.dialed) < s.opts.StaleAfter) {
		return
	}
	if err := s.dial(m, dead.Config(), connection{rest: dead.rest, again: true}); err != nil {
		s.opts.Log.Info("peer not reconnected", "cluster", m.id, "reason", err.Error())
		return
	}
	s.opts.Log.Info("the watches of a peer delivered no changes although there are some, reconnecting", "cluster", m.id)
	s.metrics.reconnected.WithLabelValues(string(m.id)).Inc()
}
