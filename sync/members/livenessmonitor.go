// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
)

// maxTick is how often peers are checked; with a short LostAfter, more often.
const maxTick = time.Second

// monitorLiveness does what depends on time until ctx ends: it updates liveness.
func (s *Set) monitorLiveness(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(context.Context) { s.tick() }, min(maxTick, s.opts.LostAfter/20))
	return nil
}

// tick checks all peers once.
func (s *Set) tick() {
	now := s.opts.Clock.Now()
	gap := now.Sub(s.lastTick)
	s.lastTick = now
	for _, known := range s.Members() {
		s.update(known.ID, func(m *member) model.MemberChanged {
			if gap > s.opts.LostAfter/4 { // a process that was stopped, or got no CPU time, could not see a renewal
				m.heartbeat.skip(gap)
			}
			return s.checkHeartbeat(m, now)
		})
	}
	s.probe(now)
}

// checkHeartbeat updates the liveness of m. The Lease of a peer with a connection is read
// as soon as a renewal is missing.
func (s *Set) checkHeartbeat(m *member, now time.Time) model.MemberChanged {
	switch {
	case !m.heartbeat.missed(now):
		return nothing
	case m.inUse() == nil:
		return s.leaseOverdue(m, now, m.claim.refused)
	case !m.heartbeat.requesting && now.Sub(m.heartbeat.requested) >= s.opts.LostAfter/2:
		// The Lease is read over a connection of its own, which works even where the watches of
		// the present connection deliver nothing any more.
		m.heartbeat.requesting, m.heartbeat.requested = true, now
		config := m.inUse().Config()
		s.ending.Go(func() {
			renewal, failure := s.requestLease(s.ctx, m.id, s.opts.Self, config)
			s.update(m.id, func(current *member) model.MemberChanged {
				if current != m { // the Peer was made again
					return nothing
				}
				return s.leaseChecked(m, renewal, failure)
			})
		})
	}
	if m.heartbeat.overdue(now) { // and probes may have found something
		return s.leaseOverdue(m, now, m.heartbeat.failure)
	}
	return nothing
}

// leaseChecked takes what requestLease read.
func (s *Set) leaseChecked(m *member, renewal string, failure remote.Failure) model.MemberChanged {
	p, now := &m.heartbeat, s.opts.Clock.Now()
	p.requesting = false
	if m.inUse() == nil || s.ctx.Err() != nil {
		return nothing
	}
	if problem := m.inUse().State().Problem; problem.Reason == remote.ReasonClusterIDReused {
		failure = problem // the Lease is that of another cluster
	}
	switch {
	case failure != remote.Failure{}:
		return s.leaseOverdue(m, now, failure)
	case renewal == p.renewal || p.renewal == "":
		p.renewal = renewal
		return s.leaseOverdue(m, now, because(remote.ReasonHeartbeatMissing,
			"Lease %s/%[2]s: is not renewed, although the peer's API server answers; remedy: check the Deployment and the log of Comity in cluster %[2]s", model.ExchangeNamespace(m.id), m.id))
	}
	p.renewal = renewal
	// A watch that failed is restarted by its reflector. One that is open should have delivered the
	// renewal; if its event is about to come, little is lost.
	if m.inUse().Watching() {
		s.opts.Log.Info("the watches of a peer delivered no changes although there are some, reconnecting", "peer", m.id)
		m.inUse().Reconnect()
		m.reconnects++
	}
	return s.leaseRenewed(m, now)
}

// leaseRead is the LeaseRead hook: a watch delivered the Lease.
func (s *Set) leaseRead(c *remote.Connection, renewal string) {
	s.update(c.ID(), func(m *member) model.MemberChanged {
		if m.inUse() != c || c.State().Problem.Reason == remote.ReasonClusterIDReused {
			return nothing
		}
		// The first Lease that is read proves nothing: it may be years old.
		renewed := m.heartbeat.renewal != "" && m.heartbeat.renewal != renewal
		m.heartbeat.renewal = renewal
		if !renewed {
			return nothing
		}
		return s.leaseRenewed(m, s.opts.Clock.Now())
	})
}

// leaseRenewed records a renewal.
func (s *Set) leaseRenewed(m *member, now time.Time) model.MemberChanged {
	before := m.heartbeat.liveness
	switch {
	case !m.heartbeat.seen(now):
		return nothing
	case before.State == model.Connected:
		return model.HeartbeatFirst
	}
	s.opts.Log.Info("the heartbeat of a peer is seen again", "peer", m.id)
	return model.HeartbeatBack
}

// leaseOverdue makes the peer Lost if it is time.
func (s *Set) leaseOverdue(m *member, now time.Time, why remote.Failure) model.MemberChanged {
	m.heartbeat.failure = why
	answers, known := s.prober.Answers(types.NamespacedName{})[m.id]
	if !m.heartbeat.update(now, known && !answers, why.Reason, why.Message) {
		return nothing
	}
	s.logFailure(m, "the heartbeat of a peer is missing", why)
	return model.HeartbeatMissing
}

// Of each peer, up to maxSample endpoints are probed: once its heartbeat is overdue, those
// that answered while it was Connected, when they are probed a fifteenth as often. An
// endpoint that never answered says nothing: a NetworkPolicy may let only its clients in. One
// that did not in the last sample may be slow: it counts as long as it did in one of the last ones.
const (
	maxSample   = 50
	sampleEvery = 15
	lastSamples = 10
)

// probe has the endpoints probed of all peers without a heartbeat, and samples those of the others.
func (s *Set) probe(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	overdue := map[model.ClusterID][]netip.AddrPort{}
	for _, known := range s.view.Load().members {
		m := s.members[known.ID]
		switch p := &m.probes; {
		case m.heartbeat.overdue(now):
			overdue[m.id] = slices.Collect(maps.Keys(p.answered))
		case known.from != nil && !m.heartbeat.missed(now) && !p.sampling && now.Sub(p.sampled) >= sampleEvery*s.opts.Probe:
			p.sampling, p.sampled = true, now
			s.ending.Go(func() { s.sample(m, s.targets(&known)) })
		}
	}
	s.prober.Watch(types.NamespacedName{}, overdue)
}

// sample finds which of some endpoints of m answer.
func (s *Set) sample(m *member, targets sets.Set[netip.AddrPort]) {
	answers := s.prober.Dial(s.ctx, targets)
	s.mu.Lock()
	defer s.mu.Unlock()
	p, now := &m.probes, s.opts.Clock.Now()
	p.sampling = false
	if m.heartbeat.missed(now) { // it may be down already
		return
	}
	before := p.answered
	p.answered = map[netip.AddrPort]time.Time{}
	for target, answered := range answers {
		last, did := before[target]
		if answered {
			last, did = now, true
		}
		if did && now.Sub(last) < lastSamples*sampleEvery*s.opts.Probe {
			p.answered[target] = last
		}
	}
}

// targets are some of the ready endpoints that a peer exports to this cluster, and that are
// accepted: of as many exports as there may be, in an order that differs between clusters,
// so that they do not all probe the same ones.
func (s *Set) targets(m *snapshot) sets.Set[netip.AddrPort] {
	byHash := map[string]types.NamespacedName{}
	for _, key := range m.from.Keys() {
		byHash[model.Hash(string(s.opts.Self)+"/"+key.String(), 8)] = key
	}
	var of [][]netip.AddrPort // by export
	for _, hash := range slices.Sorted(maps.Keys(byHash)) {
		if p := s.published(m, byHash[hash], true); p.Export != nil && len(of) < maxSample {
			of = append(of, exchange.Targets(p.Slices))
		}
	}
	out := sets.New[netip.AddrPort]()
	for round := range maxSample {
		for _, targets := range of {
			if round < len(targets) && len(out) < maxSample {
				out.Insert(targets[round])
			}
		}
	}
	return out
}

// patience is for how many times as long a peer may lack a renewal of which the endpoints
// answer, or cannot be probed: its leader may be changing, and nothing is to be done.
const patience = 3

// seen records a renewal of the Lease, and reports whether it is the first one, or the
// peer was not Connected before.
func (h *heartbeat) seen(now time.Time) bool {
	h.since, h.lastRenewal = now, now
	changed := h.liveness.State != model.Connected || !h.liveness.Seen
	h.liveness = model.Liveness{State: model.Connected, Seen: true}
	return changed
}

// reached records that the API server of the peer was read for the first time. It
// proves nothing about the agent there, but gives it time for a renewal.
func (h *heartbeat) reached(now time.Time) {
	if h.lastRenewal.IsZero() && h.liveness.State == model.Connected {
		h.since = now
	}
}

// skip leaves d out of the time without a renewal: this process did not run for
// so long, and could not have seen one.
func (h *heartbeat) skip(d time.Duration) { h.since = h.since.Add(d) }

// missed reports whether a renewal is missing, overdue whether for so long that the
// endpoints of the peer are to be probed.
func (h *heartbeat) missed(now time.Time) bool { return now.Sub(h.since) >= h.lostAfter/2 }

// overdue is described with missed.
func (h *heartbeat) overdue(now time.Time) bool { return now.Sub(h.since) >= h.lostAfter }

// update sets the state that follows from the time without a renewal, and reports
// whether it changed. Silent says that probes of its endpoints are not answered; reason and
// message say why there was no renewal.
func (h *heartbeat) update(now time.Time, silent bool, reason, message string) bool {
	was, without := h.liveness, now.Sub(h.since)
	isLost := without >= patience*h.lostAfter || silent && without >= h.lostAfter
	switch {
	case was.State == model.Lost: // only a renewal makes a peer Connected
		h.liveness.Silent = silent
	case isLost:
		h.liveness = model.Liveness{
			State: model.Lost, Silent: silent, Seen: !h.lastRenewal.IsZero(), Reason: reason, Message: message,
			Since: now.UTC().Truncate(time.Second), Confirmed: h.lastRenewal.UTC().Truncate(time.Second), // as conditions have times
		}
	}
	return h.liveness != was
}
