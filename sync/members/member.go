// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/listwatch"
	"github.com/comity-mcs/comity/sync/members/liveness"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
)

// member is one peer: the connection that is read, and the one that replaces it once it
// is synced, after a change of the Secret or because the first is dead.
type member struct {
	id        model.ClusterID
	claim     claim
	active    *remote.Connection
	next      *remote.Connection
	dialed    time.Time // when next was made
	heartbeat heartbeat
	probes    probes
	restored  time.Time // when its store was last restored from a backup
	unrenewed string    // why the token was not renewed, as logged last; only refreshAll uses it
	// rejected counts records that are not valid, and reconnects connections that were replaced
	// because their watches brought nothing any more.
	rejected   atomic.Int64
	reconnects int
}

// heartbeat is what is known about the Lease of a peer.
type heartbeat struct {
	*liveness.Tracker
	renewal    string    // the last one that was read
	requesting bool      // requestLease is running
	requested  time.Time // when it last started
	// undelivered is true while requestLease has read a renewal that no watch has delivered.
	undelivered bool
	// failure is why there was no renewal when it last ended.
	failure remote.Failure
}

// probes is what is known of the endpoints of a peer.
type probes struct {
	// answered is when each of those answered last that did lately, while the peer was Connected.
	answered map[netip.AddrPort]time.Time
	sampling bool      // sample is running
	sampled  time.Time // when it last started
}

// synced reports whether what the peer publishes is used.
func (m *member) synced() bool { return m.active != nil && m.active.Verified() }

// fails reports whether something is known to keep the peer from being read.
func (m *member) fails() bool {
	return !m.synced() && (m.claim.refused != remote.Failure{} || slices.ContainsFunc(m.connections(), func(l *remote.Connection) bool { return l.State().Problem != remote.Failure{} }))
}

// limited says which limit the peer exceeds; the zero value if none.
func (m *member) limited() remote.Failure {
	for _, l := range m.connections() {
		if problem := l.State().Problem; problem.Reason == model.ReasonLimitExceeded {
			return problem
		}
		if limit := l.SlowedBy(); limit != "" {
			return because(model.ReasonLimitExceeded, "cluster %[1]s: the limit of %[2]s is exceeded, so that its state is imported later; remedy: find out what changes so often there", m.id, limit)
		}
	}
	return remote.Failure{}
}

// drains are those of its Peer and of itself.
func (m *member) drains() []model.Drain {
	self := ""
	if m.active != nil {
		self = m.active.State().Drained
	}
	return exchange.Drains(&m.claim.peer.Spec, self)
}

func (m *member) connections() []*remote.Connection {
	return slices.DeleteFunc([]*remote.Connection{m.active, m.next}, func(l *remote.Connection) bool { return l == nil })
}

// inUse is the connection whose Lease counts: the active one, because the next one
// may lead to another cluster. Before the first is synced it is the next one.
func (m *member) inUse() *remote.Connection {
	return cmp.Or(m.active, m.next)
}

// isReadBy reports whether c is a connection of m, and was not replaced.
func (m *member) isReadBy(c *remote.Connection) bool { return m.active == c || m.next == c }

// stateChanged is the State hook: a new connection that is synced replaces the active one.
func (s *Set) stateChanged(c *remote.Connection) {
	s.update(c.ID(), func(m *member) model.MemberChanged {
		if !m.isReadBy(c) {
			return nothing
		}
		problem, verified := c.State().Problem, c.Verified()
		if m.next == c && verified {
			if m.active == nil {
				m.heartbeat.Reached(s.opts.Clock.Now())
			}
			s.retire(m.active)
			m.active, m.next = m.next, nil
		}
		switch {
		case problem.Reason != "":
			s.logFailure(m, "peer cannot be read", problem)
		case verified:
			s.opts.Log.Info("peer can be read", "peer", m.id)
		}
		return model.MemberOther
	})
}

// logFailure logs why a member is not read. The leader does that with the status of its Peer.
func (s *Set) logFailure(m *member, text string, why remote.Failure) {
	if !s.leads.Load() {
		s.opts.Log.Error(errors.New(why.Message), text, "peer", m.id, "reason", why.Reason)
	}
}

// nothing of a member changed.
const nothing model.MemberChanged = -1

// update notifies of a member if there is one and do, which runs under mu, changes it.
func (s *Set) update(id model.ClusterID, do func(*member) model.MemberChanged) {
	s.mu.Lock()
	changed := nothing
	if m := s.members[id]; m != nil {
		changed = do(m)
	}
	if changed != nothing {
		s.updateView(*s.view.Load())
	}
	s.mu.Unlock()
	if changed == nothing {
		return
	}
	s.changes.Publish(model.MemberChange{ID: id, What: changed})
	s.statuses.Publish(string(id))
}

// changed is the Changed hook. Of a connection that is not active yet, subscribers
// are notified of the member once it is.
func (s *Set) changed(c *remote.Connection, change model.MemberChange) {
	s.mu.Lock()
	m := s.members[change.ID]
	active := m != nil && m.active == c
	s.mu.Unlock()
	if active {
		s.changes.Publish(change)
	}
}

// restored is the Restored hook. Each informer detects a restore by itself; one event of
// the leader reports it.
func (s *Set) restored(c *remote.Connection, found error) {
	s.mu.Lock()
	m, now := s.members[c.ID()], s.opts.Clock.Now()
	if m == nil || !m.isReadBy(c) || now.Sub(m.restored) < listwatch.Pause {
		s.mu.Unlock()
		return
	}
	m.restored = now
	peer := m.claim.peer
	s.mu.Unlock()
	if !s.leads.Load() {
		return
	}
	s.event(peer, metav1.Condition{Status: metav1.ConditionFalse, Reason: ReasonStoreRestored, Message: fmt.Sprintf(
		"cluster %s: %v; everything that it shares is read again; remedy: what was exported there since the backup must be exported again", peer.Name, found)})
}

// retire stops a connection that is not used any more.
func (s *Set) retire(l *remote.Connection) {
	if l == nil {
		return
	}
	l.Stop()
	s.ending.Go(l.Wait)
}

// updateView makes next the view, with the members as they are now. It needs mu.
func (s *Set) updateView(next view) {
	next.members = make([]snapshot, 0, len(s.members))
	for _, id := range slices.Sorted(maps.Keys(s.members)) {
		m := s.members[id]
		r := snapshot{accepted: m.claim.accepted, Member: model.Member{
			ID: id, Synced: m.synced(), Failing: m.fails(), Liveness: m.heartbeat.Liveness,
			Drains: m.drains(), Labels: m.claim.peer.Labels, ConfirmMissingBefore: ptr.Deref(m.claim.peer.Spec.ConfirmMissingBefore, metav1.Time{}).Time, Added: m.claim.peer.CreationTimestamp.Time,
		}}
		if r.Synced {
			r.from = m.active
		}
		next.members = append(next.members, r)
	}
	s.view.Store(&next)
}
