// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
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

// ReasonStoreRestored is the reason of the event that tells of a peer that was
// restored from a backup.
const ReasonStoreRestored = "StoreRestored"

// restorePause is the time within which the kinds of a peer find one restore.
const restorePause = 2 * time.Minute

// maxRejected bounds how many bad records of one connection are told of; the
// metric counts all.
const maxRejected = 10

// member is one peer: the connection that is read from, and, while a rotated
// Secret is being tried or the old connection is dead, the one to replace it.
type member struct {
	id     model.ClusterID
	secret *corev1.Secret
	claim  claim // what the Secret holds
	active *line
	next   *line
	// readable: active is verified, and guard has seen what it holds.
	readable bool
	// refused is why the Secret's kubeconfig is not used; empty if it is.
	refused  string
	told     remote.Failure // the problem of the last event
	rejected int
	restored time.Time // when a restore was told of

	// What the Secret's annotations say; faults are those that cannot be read.
	accepted []netip.Prefix
	noted    types.UID // the cluster that the Secret names
	faults   map[string]remote.Failure
	// uid is the only cluster that may be the peer: the noted one, else the
	// first that was read.
	uid types.UID

	pulse pulse
	guard *deletionguard.Guard
}

// line is a connection, and when it was made.
type line struct {
	*remote.Connection
	rest   [sha256.Size]byte // as in the claim that it was made for
	dialed time.Time
	// again: it replaces one that is dead, and was not made for a rotated Secret.
	again bool
}

// renew uses the token of c from now on; false if c differs in more than that, or
// nothing was read yet.
func (l *line) renew(c claim) bool {
	return l != nil && c.config != nil && l.rest == c.rest && l.Renew(c.config)
}

// is reports whether the line has this connection.
func (l *line) is(c *remote.Connection) bool { return l != nil && l.Connection == c }

// pulse is what is known of a peer's Lease.
type pulse struct {
	tracker *liveness.Tracker
	stamp   string    // of the last renewal seen, by a watch or a question
	watched time.Time // when a watch last brought anything
	asking  bool      // a question is under way
	asked   time.Time // when the last one was put
	answer  remote.Failure
	// doubted is when a question brought what no watch had; zero if none did.
	doubted time.Time
}

func (s *Set) newMember(c claim) *member {
	times := liveness.Times{Stale: s.opts.StaleAfter, Lost: s.opts.LostAfter}
	return &member{
		id: c.id, secret: c.secret, noted: noted(c.secret), uid: noted(c.secret), faults: map[string]remote.Failure{},
		pulse: pulse{tracker: liveness.New(times, s.opts.Clock.Now())}, guard: deletionguard.New(s.opts.DeletionHold),
	}
}

func (m *member) state() State {
	out := State{ID: m.id, Secret: types.NamespacedName{Namespace: m.secret.Namespace, Name: m.secret.Name}, Synced: m.readable,
		Trying: m.next != nil || m.active != nil && m.active.Renewing()}
	newest := m.next
	if newest == nil {
		newest = m.active
	}
	if m.refused != "" {
		out.Reason, out.Message = ReasonInvalidKubeconfig, m.refused
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

func (m *member) lines() []*line {
	return slices.DeleteFunc([]*line{m.active, m.next}, func(l *line) bool { return l == nil })
}

// listening is the line by which the peer is heard of: the one in use. What is
// on trial may lead to another cluster. Nil if there is none at all.
func (m *member) listening() *line {
	if m.active != nil {
		return m.active
	}
	return m.next
}

// of is the member that c reads; nil if c was replaced or removed. It needs mu.
func (s *Set) of(c *remote.Connection) *member {
	if m := s.members[c.ID()]; m != nil && (m.active.is(c) || m.next.is(c)) {
		return m
	}
	return nil
}

// stateChanged is the hook of a connection whose state changed: a new one that
// is synced takes the old one's place, and transitions are told.
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
	// Of a connection on trial and one in use, the one on trial is what the
	// Secret says now, so its problems are the ones to tell.
	if m.next == nil || m.next.is(c) {
		s.tellProblem(m, problem, verified)
	}
	s.look(m)
	after := afterwards{members: []model.ClusterID{m.id}, pins: s.learn(m)}
	s.publish()
	s.mu.Unlock()
	after.do(s)
}

// look works out whether the active connection may be read from now on. What it
// lacks of what was read before is judged at once, before anybody can read it.
func (s *Set) look(m *member) {
	verified := m.active != nil && m.active.Verified()
	if verified && !m.readable {
		now := s.opts.Clock.Now()
		there := func(key types.NamespacedName) bool { _, ok := m.active.Export(key); return ok }
		m.guard.Retain(there, now)
		m.guard.Present(slices.DeleteFunc(m.active.Keys(), func(key types.NamespacedName) bool { return !there(key) })...)
		m.pulse.tracker.Reached(now)
	}
	m.readable = verified
}

// exportsListed is the hook for a list of exports that is about to replace what
// was read before.
func (s *Set) exportsListed(c *remote.Connection, present func(types.NamespacedName) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.of(c); m != nil && m.active.is(c) && m.readable {
		m.guard.Retain(present, s.opts.Clock.Now())
	}
}

// exportChanged is the hook for one export of a verified peer.
func (s *Set) exportChanged(c *remote.Connection, key types.NamespacedName) {
	s.mu.Lock()
	m := s.of(c)
	if m == nil || !m.active.is(c) || !m.readable {
		s.mu.Unlock()
		return // all is told of once it may be read
	}
	if _, there := c.Export(key); there {
		m.guard.Present(key)
	} else {
		m.guard.Absent(key, s.opts.Clock.Now())
	}
	s.mu.Unlock()
	s.tellKey(key)
}

func (s *Set) slicesChanged(_ *remote.Connection, key types.NamespacedName) { s.tellKey(key) }

// tellProblem writes one event for each transition.
func (s *Set) tellProblem(m *member, problem remote.Failure, verified bool) {
	if problem.Reason == m.told.Reason {
		return
	}
	switch {
	case problem.Reason != "":
		m.told = problem
		s.opts.Log.Info("peer cannot be read", "cluster", m.id, "reason", problem.Reason, "message", problem.Message)
		s.event(m.secret, aboutReading, corev1.EventTypeWarning, problem.Reason, problem.Message)
	case verified:
		m.told = remote.Failure{}
		s.opts.Log.Info("peer can be read", "cluster", m.id)
		s.event(m.secret, aboutReading, corev1.EventTypeNormal, ReasonConnected, "everything that cluster "+string(m.id)+" shares was read")
	}
}

// rejectedRecord is the hook for a record that cannot be believed.
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

// restored is the hook for a peer whose store went back. Each kind finds that for
// itself, and it is told once.
func (s *Set) restored(c *remote.Connection, found *restoredetect.Found) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, now := s.of(c), s.opts.Clock.Now()
	if m == nil || !m.restored.IsZero() && now.Sub(m.restored) < restorePause {
		return
	}
	m.restored = now
	s.opts.Log.Info("peer is read anew", "cluster", m.id, "reason", ReasonStoreRestored, "message", found.Error())
	s.event(m.secret, aboutStore, corev1.EventTypeWarning, ReasonStoreRestored, fmt.Sprintf("cluster %s: %v; what it shares is read anew and followed; "+
		"remedy: none if that was meant; what was exported there since the backup was made must be exported again", m.id, found))
}

// retire stops a connection that nobody reads any more.
func (s *Set) retire(l *line) {
	if l == nil {
		return
	}
	l.Stop()
	s.ending.Go(l.Wait)
}

// publish replaces what readers see.
func (s *Set) publish() {
	view := make([]reading, 0, len(s.members))
	for _, id := range slices.Sorted(maps.Keys(s.members)) {
		m := s.members[id]
		r := reading{
			id: id, secret: types.NamespacedName{Namespace: m.secret.Namespace, Name: m.secret.Name},
			contact: m.pulse.tracker.Liveness(), properties: m.secret.Labels, accepted: m.accepted, guard: m.guard,
		}
		if m.readable {
			r.from = m.active.Connection
		}
		s.metrics.show(r)
		view = append(view, r)
	}
	s.view.Store(&view)
}
