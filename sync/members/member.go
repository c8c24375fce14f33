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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/members/deletionguard"
	"github.com/comity-mcs/comity/sync/members/liveness"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
	"github.com/comity-mcs/comity/sync/restoredetect"
)

// ReasonConnected is the reason of the event that ends a peer's problem.
const ReasonConnected = "Connected"

// ReasonStoreRestored is the reason of the event about a peer that was restored
// from a backup.
const ReasonStoreRestored = "StoreRestored"

// maxRejected bounds the events about invalid records of one connection; the
// metric counts all.
const maxRejected = 10

// member is one peer: the connection that is read, and the one that replaces it
// once it is synced, after a change of the Secret or because the first is dead.
type member struct {
	id     model.ClusterID
	secret *corev1.Secret
	claim  claim // what the Secret holds
	active *connection
	next   *connection
	// readable: active is verified, and its exports were given to guard.
	readable bool
	// known: it was readable since this process started, or something was imported from
	// it before. That the Secret is its own is certain then.
	known bool
	// refused is why what the Secret holds is not used; empty if it is.
	refused remote.Failure
	// absent is since when the Secret is missing; zero if it is not.
	absent   time.Time
	reported remote.Failure // the problem of the last event
	rejected int
	restored time.Time // when the last restore was reported
	slowedBy string    // the limit for which changes of the peer wait; empty if they do not

	// properties are the labels of the Secret as long as it is not refused.
	properties map[string]string
	// What the Secret's annotations say; faults are those that cannot be read.
	accepted accepted
	recorded types.UID // the cluster that the Secret names
	faults   map[string]remote.Failure
	// confirmation is what its Secret confirms.
	confirmation confirmation
	// uid is the only cluster that may be the peer: the recorded one, else the
	// first that was read.
	uid types.UID

	heartbeat heartbeat
	// states: the peer states its withdrawals, as its MemberRecord said last;
	// statesKnown: that was read. A record that is missing changes nothing: while an
	// exchange is deleted, exports may go before it is known that the peer is
	// unverified.
	states, statesKnown bool
	read                bool // it was synced before, or is
	holds               *holds
	guard               *deletionguard.Guard
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

func (s *Set) newMember(c claim) *member {
	times := liveness.Times{Stale: s.opts.StaleAfter, Lost: s.opts.LostAfter}
	return &member{
		id: c.id, secret: c.secret, properties: c.secret.Labels, recorded: recordedUID(c.secret), uid: recordedUID(c.secret), faults: map[string]remote.Failure{},
		heartbeat: heartbeat{tracker: liveness.New(times, s.opts.Clock.Now())}, holds: newHolds(), guard: deletionguard.New(s.opts.DeletionHold),
	}
}

func (m *member) state() State {
	out := State{ID: m.id, Secret: types.NamespacedName{Namespace: m.secret.Namespace, Name: m.secret.Name}, Synced: m.synced(),
		Trying: m.next != nil || m.active != nil && m.active.Renewing()}
	newest := m.next
	if newest == nil {
		newest = m.active
	}
	if m.refused.Reason != "" {
		out.Reason, out.Message = m.refused.Reason, m.refused.Message
		return out
	}
	if newest != nil {
		problem, _ := newest.State()
		out.Reason, out.Message = problem.Reason, problem.Message
	}
	for _, annotation := range slices.Sorted(maps.Keys(m.faults)) {
		if out.Reason == "" {
			out.Reason, out.Message = m.faults[annotation].Reason, m.faults[annotation].Message
		}
	}
	return out
}

// synced reports whether what the peer publishes is used.
func (m *member) synced() bool { return m.readable && m.statesKnown && m.accepted.known() }

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

// stateChanged is the State hook: a new connection that is synced replaces the
// active one, and transitions become events.
func (s *Set) stateChanged(c *remote.Connection) {
	s.mu.Lock()
	m := s.of(c)
	if m == nil {
		s.mu.Unlock()
		return
	}
	problem, verified := c.State()
	if m.next.is(c) && verified {
		s.retire(m.active)
		m.active, m.next, m.readable = m.next, nil, false
		m.active.renew(m.claim) // the token may have been replaced since
	}
	// The next connection is what the Secret says now, so its problems are
	// reported rather than those of the active one.
	if m.next == nil || m.next.is(c) {
		s.reportProblem(m, problem, verified)
	}
	s.updateReadable(m)
	after := followUp{members: []model.ClusterID{m.id}, pins: s.pinCluster(m)}
	s.updateView()
	s.mu.Unlock()
	after.do(s)
}

// updateReadable determines whether the active connection may be read. The deletion
// guard gets all its exports first, so that no reader sees an unchecked deletion.
func (s *Set) updateReadable(m *member) {
	verified := m.active != nil && m.active.Verified()
	if verified && !m.readable {
		now := s.opts.Clock.Now()
		there := func(key types.NamespacedName) bool { _, ok := m.active.Export(key); return ok }
		m.guard.Retain(there, now)
		m.guard.Present(slices.DeleteFunc(m.active.Keys(), func(key types.NamespacedName) bool { return !there(key) })...)
		m.heartbeat.tracker.Reached(now)
		m.known = true
	}
	m.readable = verified
}

// exportsListed is the Listed hook.
func (s *Set) exportsListed(c *remote.Connection, present func(types.NamespacedName) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.of(c); m != nil && m.active.is(c) && m.readable {
		m.guard.Retain(present, s.opts.Clock.Now())
	}
}

// exportChanged is the Export hook.
func (s *Set) exportChanged(c *remote.Connection, key types.NamespacedName) {
	s.mu.Lock()
	m := s.of(c)
	if m == nil || !m.active.is(c) || !m.readable {
		s.mu.Unlock()
		return // subscribers are notified of the member once it is readable
	}
	if _, there := c.Export(key); there {
		m.guard.Present(key)
	} else {
		m.guard.Absent(key, s.opts.Clock.Now())
	}
	s.mu.Unlock()
	s.pacer.changed(c.ID(), key, 0)
}

func (s *Set) slicesChanged(c *remote.Connection, key types.NamespacedName, bytes int) {
	s.pacer.changed(c.ID(), key, bytes)
}

// reportProblem writes one event for each transition.
func (s *Set) reportProblem(m *member, problem remote.Failure, verified bool) {
	if problem.Reason == m.reported.Reason {
		return
	}
	switch {
	case problem.Reason != "":
		m.reported = problem
		s.opts.Log.Info("peer cannot be read", "cluster", m.id, "reason", problem.Reason, "message", problem.Message)
		s.event(m.secret, aboutReading, corev1.EventTypeWarning, problem.Reason, problem.Message)
	case verified:
		m.reported = remote.Failure{}
		s.opts.Log.Info("peer can be read", "cluster", m.id)
		s.event(m.secret, aboutReading, corev1.EventTypeNormal, ReasonConnected, "everything that cluster "+string(m.id)+" shares was read")
	}
}

// updateSlowed determines which limit slows down what is read of m, writes an event if
// that began, and reports whether it began or ended.
func (s *Set) updateSlowed(m *member) (changed bool) {
	before := m.slowedBy
	m.slowedBy = s.pacer.slowedBy(m.id)
	for _, l := range m.connections() {
		m.slowedBy = cmp.Or(l.SlowedBy(), m.slowedBy)
	}
	if (before == "") == (m.slowedBy == "") {
		return false
	}
	if m.slowedBy == "" {
		s.opts.Log.Info("the changes of a peer are followed at once again", "cluster", m.id)
		return true
	}
	message := fmt.Sprintf("cluster %[1]s: the limit of %[2]s is exceeded, so that its latest state is imported later; "+
		"remedy: find out why it changes so often in cluster %[1]s", m.id, m.slowedBy)
	s.opts.Log.Info("the changes of a peer have to wait", "cluster", m.id, "reason", ReasonLimitExceeded, "message", message)
	s.event(m.secret, aboutSpeed, corev1.EventTypeWarning, ReasonLimitExceeded, message)
	return true
}

// rejectedRecord is the Rejected hook.
func (s *Set) rejectedRecord(c *remote.Connection, err error) {
	s.metrics.rejected.WithLabelValues(string(c.ID())).Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[c.ID()]
	if m == nil || m.rejected >= maxRejected {
		return
	}
	m.rejected++
	s.opts.Log.Info("record refused", "cluster", c.ID(), "reason", remote.ReasonInvalidRecord, "message", err.Error())
	s.event(m.secret, aboutRecords, corev1.EventTypeWarning, remote.ReasonInvalidRecord, err.Error())
}

// restored is the Restored hook. Each informer detects a restore by itself; one
// event reports it.
func (s *Set) restored(c *remote.Connection, found *restoredetect.Found) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, now := s.of(c), s.opts.Clock.Now()
	if m == nil || !m.restored.IsZero() && now.Sub(m.restored) < restoredetect.Pause {
		return
	}
	m.restored = now
	s.opts.Log.Info("peer is read again", "cluster", m.id, "reason", ReasonStoreRestored, "message", found.Error())
	s.event(m.secret, aboutStore, corev1.EventTypeWarning, ReasonStoreRestored, fmt.Sprintf("cluster %s: %v; everything that it shares is read again; "+
		"remedy: none if that was meant; what was exported there since the backup was made must be exported again", m.id, found))
}

// readFeatures returns whether the peer states its withdrawals.
func (m *member) readFeatures() bool {
	if !m.readable {
		return m.states
	}
	if states, known := m.active.StatesWithdrawals(); known {
		m.states, m.statesKnown = states, true
	}
	return m.states
}

// retire stops a connection that is not used any more.
func (s *Set) retire(l *connection) {
	if l == nil {
		return
	}
	l.Stop()
	s.ending.Go(l.Wait)
}

// updateView replaces the view.
func (s *Set) updateView() {
	view := make([]snapshot, 0, len(s.members))
	for _, id := range slices.Sorted(maps.Keys(s.members)) {
		m := s.members[id]
		r := snapshot{
			id: id, secret: types.NamespacedName{Namespace: m.secret.Namespace, Name: m.secret.Name},
			liveness: m.heartbeat.tracker.Liveness(), properties: m.properties, accepted: m.accepted,
			states: m.readFeatures(), holds: m.holds, guard: m.guard,
			unused: !m.absent.IsZero() || m.claim.unusable(),
		}
		if m.synced() {
			r.from, m.read = m.active.Connection, true
		}
		r.read = m.read
		r.limited = m.slowedBy != "" || slices.ContainsFunc(m.connections(), func(l *connection) bool {
			problem, _ := l.State()
			return problem.Reason == remote.ReasonLimitExceeded
		})
		s.metrics.set(r)
		view = append(view, r)
	}
	s.view.Store(&view)
}
