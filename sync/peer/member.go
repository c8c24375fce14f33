// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"crypto/sha256"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
)

// ReasonConnected is the reason of the event that ends a peer's problem.
const ReasonConnected = "Connected"

// maxRejected bounds how many bad records of one connection are told of; the
// metric counts all.
const maxRejected = 10

// member is one peer: the connection that is read from, and, while a rotated
// Secret is being tried, the one that will replace it.
type member struct {
	id     model.ClusterID
	secret *corev1.Secret
	digest [sha256.Size]byte
	active *connection
	next   *connection
	// refused is why the Secret's kubeconfig is not used; empty if it is.
	refused  string
	told     failure // the problem of the last event
	rejected int
}

func (m *member) state() State {
	out := State{ID: m.id, Secret: types.NamespacedName{Namespace: m.secret.Namespace, Name: m.secret.Name}}
	newest := m.next
	if m.active != nil {
		out.Synced = m.active.verified.Load()
		if newest == nil {
			newest = m.active
		}
	}
	switch {
	case m.refused != "":
		out.Reason, out.Message = ReasonInvalidKubeconfig, m.refused
	case newest != nil:
		problem, _ := newest.state()
		out.Reason, out.Message = problem.reason, problem.message
	}
	return out
}

func (m *member) connections() []*connection {
	return slices.DeleteFunc([]*connection{m.active, m.next}, func(c *connection) bool { return c == nil })
}

// stateChanged is the hook of a connection whose state changed: a new one that
// is synced takes the old one's place, and transitions are told.
func (s *Set) stateChanged(c *connection) {
	s.mu.Lock()
	m := s.members[c.id]
	if m == nil || (m.active != c && m.next != c) {
		s.mu.Unlock()
		return // replaced or removed meanwhile
	}
	problem, verified := c.state()
	if m.next == c && verified {
		s.retire(m.active)
		m.active, m.next = c, nil
	}
	// Of a connection on trial and one in use, the one on trial is what the
	// Secret says now, so its problems are the ones to tell.
	if m.next == nil || m.next == c {
		s.tellProblem(m, problem, verified)
	}
	s.publish()
	s.mu.Unlock()
	s.tellMember(c.id)
}

// tellProblem writes one event for each transition.
func (s *Set) tellProblem(m *member, problem failure, verified bool) {
	if problem.reason == m.told.reason {
		return
	}
	switch {
	case problem.reason != "":
		m.told = problem
		s.opts.Log.Info("peer cannot be read", "cluster", m.id, "reason", problem.reason, "message", problem.message)
		s.event(m.secret, corev1.EventTypeWarning, problem.reason, problem.message)
	case verified:
		m.told = failure{}
		s.opts.Log.Info("peer can be read", "cluster", m.id)
		s.event(m.secret, corev1.EventTypeNormal, ReasonConnected, "everything that cluster "+string(m.id)+" shares was read")
	}
}

// rejected is the hook for a record that cannot be believed.
func (s *Set) rejectedRecord(c *connection, err error) {
	s.metrics.rejected.WithLabelValues(string(c.id)).Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[c.id]
	if m == nil || m.rejected >= maxRejected {
		return
	}
	m.rejected++
	s.opts.Log.Info("record refused", "cluster", c.id, "reason", "InvalidRecord", "message", err.Error())
	s.event(m.secret, corev1.EventTypeWarning, "InvalidRecord", err.Error())
}

// notice is what an event says about a Secret.
type notice struct {
	secret                *corev1.Secret
	kind, reason, message string
}

// event tells about a Secret. Every replica sees the same and only the leader
// tells, so that each thing is told once; what was wrong last, per Secret, is
// kept for the moment in which this replica becomes the leader. It needs mu.
func (s *Set) event(secret *corev1.Secret, kind, reason, message string) {
	n := notice{secret, kind, reason, message}
	switch {
	case s.leads:
		s.tell(n)
	case kind == corev1.EventTypeWarning:
		s.untold[secret.UID] = n
	default:
		delete(s.untold, secret.UID) // it is right again
	}
}

// tell writes an event; the API allows 1,024 bytes of message.
func (s *Set) tell(n notice) {
	s.opts.Recorder.Eventf(n.secret, nil, n.kind, n.reason, "Connect", "%s", model.Bound(n.message, 1000))
}

// lead makes this replica the one that tells.
func (s *Set) lead() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leads = true
	for _, uid := range slices.Sorted(maps.Keys(s.untold)) {
		s.tell(s.untold[uid])
	}
	clear(s.untold)
}

// retire stops a connection that nobody reads any more.
func (s *Set) retire(c *connection) {
	if c == nil {
		return
	}
	c.stop()
	s.retired.Go(c.wait)
}

// publish replaces what readers see.
func (s *Set) publish() {
	view := make([]reading, 0, len(s.members))
	s.metrics.synced.Reset()
	for _, id := range slices.Sorted(maps.Keys(s.members)) {
		r := reading{id: id}
		if active := s.members[id].active; active != nil && active.verified.Load() {
			r.from = active
		}
		value := 0.0
		if r.from != nil {
			value = 1
		}
		s.metrics.synced.WithLabelValues(string(id)).Set(value)
		view = append(view, r)
	}
	s.view.Store(&view)
}

type metrics struct {
	synced   *prometheus.GaugeVec
	refused  *prometheus.GaugeVec
	rejected *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer) metrics {
	with := promauto.With(registry)
	return metrics{
		synced: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "comity_peer_synced", Help: "1 if everything that the peer shares was read since start.",
		}, []string{"cluster"}),
		refused: with.NewGaugeVec(prometheus.GaugeOpts{
			Name: "comity_peer_secrets_refused", Help: "Peer Secrets that are not used, by reason.",
		}, []string{"reason"}),
		rejected: with.NewCounterVec(prometheus.CounterOpts{
			Name: "comity_peer_records_rejected_total", Help: "Records of a peer that were read and are not valid.",
		}, []string{"cluster"}),
	}
}
