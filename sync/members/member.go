// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/members/liveness"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
	"github.com/comity-mcs/comity/sync/restoredetect"
)

// member is one peer: the connection that is read, and the one that replaces it once it
// is synced, after a change of the Secret or because the first is dead.
type member struct {
	id        model.ClusterID
	claim     claim
	active    *connection
	next      *connection
	heartbeat heartbeat
	slowedBy  string // the limit for which changes of the peer wait; empty if they do not
	restored  restore
}

// restore is the last one of the peer's store from a backup.
type restore struct {
	at      time.Time
	message string
	said    bool // by an event
}

// connection is a remote.Connection and what it was made for.
type connection struct {
	*remote.Connection
	rest   [sha256.Size]byte // as in the claim that it was made for
	dialed time.Time
	// again: it replaces one that is dead, and was not made for a rotated Secret.
	again bool
}

// renew has the connection use the token of c. It reports false if c differs in more
// than the token, or if not everything was listed yet.
func (l *connection) renew(c claim) bool {
	return l != nil && c.config != nil && l.rest == c.rest && l.Renew(c.config)
}

// is reports whether c is the connection.
func (l *connection) is(c *remote.Connection) bool { return l != nil && l.Connection == c }

// heartbeat is what is known about the Lease of a peer.
type heartbeat struct {
	tracker    *liveness.Tracker
	renewal    string    // the last one that was read
	lastEvent  time.Time // of the watch
	requesting bool      // checkLease is running
	requested  time.Time // when it last started
	failure    remote.Failure
	// unseen is when checkLease read a renewal that the watch had not delivered;
	// zero if the watch delivered all.
	unseen time.Time
}

func (s *Set) newMember(id model.ClusterID) *member {
	times := liveness.Times{Stale: s.opts.StaleAfter, Lost: s.opts.LostAfter}
	return &member{id: id, heartbeat: heartbeat{tracker: liveness.New(times, s.opts.Clock.Now())}}
}

// synced reports whether what the peer publishes is used.
func (m *member) synced() bool { return m.active != nil && m.active.Verified() }

// limited says which limit the peer exceeds; empty if none.
func (m *member) limited() string {
	for _, l := range m.connections() {
		if problem, _ := l.State(); problem.Reason == remote.ReasonLimitExceeded {
			return problem.Message
		}
	}
	if m.slowedBy == "" {
		return ""
	}
	return fmt.Sprintf("cluster %[1]s: the limit of %[2]s is exceeded, so that its latest state is imported later; "+
		"remedy: find out why it changes so often in cluster %[1]s", m.id, m.slowedBy)
}

func (m *member) connections() []*connection {
	return slices.DeleteFunc([]*connection{m.active, m.next}, func(l *connection) bool { return l == nil })
}

// inUse is the connection whose Lease counts: the active one, because the next one
// may lead to another cluster. Before the first is synced it is the next one.
func (m *member) inUse() *connection {
	if m.active != nil {
		return m.active
	}
	return m.next
}

// of returns the member that c reads; nil if c was replaced or removed. It needs mu.
func (s *Set) of(c *remote.Connection) *member {
	if m := s.members[c.ID()]; m != nil && (m.active.is(c) || m.next.is(c)) {
		return m
	}
	return nil
}

// stateChanged is the State hook: a new connection that is synced replaces the active one.
func (s *Set) stateChanged(c *remote.Connection) {
	s.mu.Lock()
	m := s.of(c)
	if m == nil {
		s.mu.Unlock()
		return
	}
	problem, verified := c.State()
	if m.next.is(c) && verified {
		if m.active == nil {
			m.heartbeat.tracker.Reached(s.opts.Clock.Now())
		}
		s.retire(m.active)
		m.active, m.next = m.next, nil
		m.active.renew(m.claim) // the token may have been replaced since
	}
	switch {
	case problem.Reason != "":
		s.opts.Log.Info("peer cannot be read", "cluster", m.id, "reason", problem.Reason, "message", problem.Message)
	case verified:
		s.opts.Log.Info("peer can be read", "cluster", m.id)
	}
	s.updateView()
	s.mu.Unlock()
	s.memberChanged(m.id)
}

// memberChanged notifies of a member.
func (s *Set) memberChanged(id model.ClusterID) {
	s.changedMembers.Publish(id)
	s.statuses.Publish(statusChange{string(id), false})
}

// exportChanged is the Export hook. Of a connection that is not active yet, subscribers
// are notified of the member once it is.
func (s *Set) exportChanged(c *remote.Connection, key types.NamespacedName) {
	s.mu.Lock()
	m := s.of(c)
	active := m != nil && m.active.is(c)
	s.mu.Unlock()
	if active {
		s.pacer.changed(c.ID(), key, 0)
		s.statuses.Publish(statusChange{string(c.ID()), true})
	}
}

func (s *Set) slicesChanged(c *remote.Connection, key types.NamespacedName, bytes int) {
	s.pacer.changed(c.ID(), key, bytes)
}

// updateSlowed determines which limit slows down what is read of m, and reports whether
// that began or ended. The limit is the first one for as long as it lasts.
func (s *Set) updateSlowed(m *member) (changed bool) {
	now := s.pacer.slowedBy(m.id)
	for _, l := range m.connections() {
		now = cmp.Or(l.SlowedBy(), now)
	}
	if (now == "") == (m.slowedBy == "") {
		return false
	}
	m.slowedBy = now
	s.opts.Log.Info("whether changes of a peer have to wait has changed", "cluster", m.id, "limit", now)
	return true
}

// restored is the Restored hook. Each informer detects a restore by itself; one event
// reports it.
func (s *Set) restored(c *remote.Connection, found *restoredetect.Found) {
	s.mu.Lock()
	m, now := s.of(c), s.opts.Clock.Now()
	if m == nil || !m.restored.at.IsZero() && now.Sub(m.restored.at) < restoredetect.Pause {
		s.mu.Unlock()
		return
	}
	m.restored = restore{at: now, message: fmt.Sprintf("cluster %s: %v; everything that it shares is read again; "+
		"remedy: none if that was meant; what was exported there since the backup was made must be exported again", m.id, found)}
	s.opts.Log.Info("peer is read again", "cluster", m.id, "reason", ReasonStoreRestored, "message", found.Error())
	s.mu.Unlock()
	s.statuses.Publish(statusChange{string(m.id), false})
}

// retire stops a connection that is not used any more.
func (s *Set) retire(l *connection) {
	if l == nil {
		return
	}
	l.Stop()
	s.ending.Go(l.Wait)
}

// updateView replaces the members of the view. It needs mu.
func (s *Set) updateView() {
	next := *s.view.Load()
	next.members = make([]snapshot, 0, len(s.members))
	for _, id := range slices.Sorted(maps.Keys(s.members)) {
		m := s.members[id]
		r := snapshot{accepted: m.claim.accepted, Member: model.Member{
			ID: id, Synced: m.synced(), Liveness: m.heartbeat.tracker.Liveness(),
			Labels: m.claim.peer.Labels, ConfirmMissingBefore: m.claim.confirmMissingBefore(),
		}}
		if r.Synced {
			r.from = m.active.Connection
		}
		s.metrics.set(m)
		next.members = append(next.members, r)
	}
	s.view.Store(&next)
}
