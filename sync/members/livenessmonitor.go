// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/members/deletionguard"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
)

// ReasonDeletionHeld is the reason of the event that tells of held deletions.
const ReasonDeletionHeld = "DeletionHeld"

// maxTick is how often peers are looked at; with short times, more often.
const maxTick = time.Second

// livenessMonitor looks at the time that passes: silence, and holds that are over.
type livenessMonitor struct{ set *Set }

// NeedLeaderElection is false: every replica reads the peers for itself.
func (livenessMonitor) NeedLeaderElection() bool { return false }

// Start looks now and then until ctx ends.
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

// tick judges what the time since the last tick has changed.
func (s *Set) tick() {
	s.mu.Lock()
	now := s.opts.Clock.Now()
	// A process that was stopped, or starved, heard nothing and may not call
	// that the silence of others.
	gap := now.Sub(s.ticked)
	s.ticked = now
	var after afterwards
	for _, id := range slices.Sorted(maps.Keys(s.members)) {
		m := s.members[id]
		if gap > s.opts.StaleAfter/4 {
			m.pulse.tracker.Excuse(gap)
		}
		if s.listen(m, now) {
			after.members = append(after.members, id)
		}
		after.keys = append(after.keys, s.release(m, now)...)
		after.pins = append(after.pins, s.learn(m)...)
	}
	if len(after.members) > 0 || len(after.keys) > 0 {
		s.publish()
	}
	s.mu.Unlock()
	after.do(s)
}

// listen follows the silence of m, and reports whether its contact changed.
func (s *Set) listen(m *member, now time.Time) bool {
	p := &m.pulse
	// The question may only have been quicker than the watch, so the watch is
	// given a moment before it is called dead. One that failed comes back by
	// itself, and a new connection would read everything once more.
	if !p.doubted.IsZero() && now.Sub(p.doubted) >= s.opts.StaleAfter/20 {
		if p.watched.Before(p.doubted) && m.listening().Watching() {
			s.reconnect(m, now)
		}
		p.doubted = time.Time{}
	}
	switch {
	case !p.tracker.Silent(now):
		return false
	case m.listening() == nil:
		return s.silence(m, now, remote.Failure{Reason: ReasonInvalidKubeconfig, Message: m.refused})
	}
	if !p.asking && now.Sub(p.asked) >= s.opts.StaleAfter/2 {
		s.question(m, now)
	}
	// Before it is Stale the peer is asked; after that the last answer counts.
	return p.tracker.Liveness().State != model.Connected && s.silence(m, now, p.answer)
}

// question asks for the peer's Lease on a connection of its own.
func (s *Set) question(m *member, now time.Time) {
	m.pulse.asking, m.pulse.asked = true, now
	config := m.listening().Config()
	s.ending.Go(func() {
		stamp, failure := s.ask(s.ctx, m.id, s.opts.Self, config)
		s.answered(m, stamp, failure)
	})
}

// answered judges the answer to a question.
func (s *Set) answered(m *member, stamp string, failure remote.Failure) {
	s.mu.Lock()
	p, now := &m.pulse, s.opts.Clock.Now()
	p.asking = false
	if s.members[m.id] != m || s.ctx.Err() != nil {
		s.mu.Unlock()
		return
	}
	if problem, strange := stranger(m); strange {
		failure = problem
	}
	var changed bool
	switch first := p.stamp == ""; {
	case failure != remote.Failure{}:
		p.answer = failure
		changed = s.silence(m, now, failure)
	case stamp == p.stamp || first:
		p.stamp, p.answer = stamp, remote.Silent(m.id)
		changed = s.silence(m, now, p.answer)
	default:
		p.stamp, p.doubted = stamp, now
		changed = s.heard(m, now)
	}
	if changed {
		s.publish()
	}
	s.mu.Unlock()
	if changed {
		s.tellMember(m.id)
	}
}

// leaseSeen is the hook for the peer's Lease, read by a watch.
func (s *Set) leaseSeen(c *remote.Connection, stamp string) {
	s.mu.Lock()
	m := s.of(c)
	if m == nil || !m.listening().is(c) {
		s.mu.Unlock()
		return
	}
	if _, strange := stranger(m); strange {
		s.mu.Unlock()
		return
	}
	p, now := &m.pulse, s.opts.Clock.Now()
	p.watched = now
	// The first sight of a Lease says nothing: it may be years old.
	renewed := p.stamp != "" && p.stamp != stamp
	p.stamp = stamp
	changed := renewed && s.heard(m, now)
	if changed {
		s.publish()
	}
	s.mu.Unlock()
	if changed {
		s.tellMember(m.id)
	}
}

// stranger reports whether another cluster answers where the peer did. Its Lease
// says nothing of the peer.
func stranger(m *member) (remote.Failure, bool) {
	l := m.listening()
	if l == nil {
		return remote.Failure{}, false
	}
	problem, _ := l.State()
	return problem, problem.Reason == ReasonClusterIDReused
}

// heard ends a silence, and tells of that if it was one.
func (s *Set) heard(m *member, now time.Time) bool {
	if !m.pulse.tracker.Heard(now) {
		return false
	}
	s.opts.Log.Info("peer is heard of again", "cluster", m.id)
	s.event(m.secret, aboutLiveness, corev1.EventTypeNormal, ReasonConnected, "cluster "+string(m.id)+" is heard of again")
	return true
}

// silence moves to the state that the silence has come to, and tells of that.
func (s *Set) silence(m *member, now time.Time, why remote.Failure) bool {
	if !m.pulse.tracker.Judge(now, why.Reason, why.Message) {
		return false
	}
	c := m.pulse.tracker.Liveness()
	since := "since this process started"
	if !c.Confirmed.IsZero() {
		since = "since " + c.Confirmed.Format(time.RFC3339)
	}
	s.opts.Log.Info("peer is not heard of", "cluster", m.id, "state", c.State.String(), "reason", why.Reason, "message", why.Message)
	s.event(m.secret, aboutLiveness, corev1.EventTypeWarning, c.State.String(),
		fmt.Sprintf("cluster %s was not heard of %s: %s: %s", m.id, since, why.Reason, why.Message))
	return true
}

// reconnect replaces a connection whose watches bring nothing although the peer
// has news. The old one stays until the new one is synced. What a rotated Secret
// has on trial is not given up for that: it is what the administrator wants.
func (s *Set) reconnect(m *member, now time.Time) {
	dead := m.listening()
	if m.next != nil && (!m.next.again || now.Sub(m.next.dialed) < s.opts.StaleAfter) {
		return
	}
	if err := s.dial(m, dead.Config(), line{rest: dead.rest, again: true}); err != nil {
		s.opts.Log.Info("peer not connected anew", "cluster", m.id, "reason", err.Error())
		return
	}
	s.opts.Log.Info("the watches of a peer brought nothing although it has news, connecting anew", "cluster", m.id)
	s.metrics.reconnected.WithLabelValues(string(m.id)).Inc()
}

// release ends the holds of m that are over, and tells of new ones. Time in
// which the peer is not heard of counts for nothing: it cannot take back then.
func (s *Set) release(m *member, now time.Time) (keys []types.NamespacedName) {
	if m.readable && m.pulse.tracker.Liveness().State == model.Connected {
		keys = m.guard.Expire(now)
	}
	held, hold, news := m.guard.News(now)
	if news {
		secret := types.NamespacedName{Namespace: m.secret.Namespace, Name: m.secret.Name}
		message := fmt.Sprintf("%d of %d exports of cluster %s are gone: %s", held, hold.Of, m.id, holdMessage(m.id, secret, hold))
		s.opts.Log.Info("deletions held", "cluster", m.id, "reason", ReasonDeletionHeld, "message", message)
		s.event(m.secret, aboutDeletions, corev1.EventTypeWarning, ReasonDeletionHeld, message)
	}
	if news || len(keys) > 0 {
		s.metrics.held.WithLabelValues(string(m.id)).Set(float64(len(m.guard.Keys())))
	}
	if len(keys) > 0 {
		s.opts.Log.Info("held deletions are believed now", "cluster", m.id, "count", len(keys))
	}
	return keys
}

// holdMessage says of a held export why it is held and how to end that. It is
// the same as long as the hold stands.
func holdMessage(id model.ClusterID, secret types.NamespacedName, hold deletionguard.Hold) string {
	return fmt.Sprintf("more than %d of the %d exports of cluster %s vanished within a minute, which looks like an accident; what came of them is kept "+
		"until they are back, or until %s; remedy: export them again in cluster %s, or confirm that they are meant to go: "+
		"kubectl annotate secret -n %s %s --overwrite %s=$(date -u +%%Y-%%m-%%dT%%H:%%M:%%SZ)",
		hold.Budget, hold.Of, id, hold.Until.Format(time.RFC3339), id, secret.Namespace, secret.Name, model.AnnotationConfirmDeletions)
}
