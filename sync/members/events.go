// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"cmp"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
)

// Reasons for which a peer, or a part of what it publishes, cannot be read.
const (
	ReasonUnreachable      = remote.ReasonUnreachable
	ReasonUnauthorized     = remote.ReasonUnauthorized
	ReasonForbidden        = remote.ReasonForbidden
	ReasonNotInstalled     = remote.ReasonNotInstalled
	ReasonMemberUnverified = remote.ReasonMemberUnverified
	ReasonClusterIDReused  = remote.ReasonClusterIDReused
	ReasonHeartbeatMissing = remote.ReasonHeartbeatMissing
)

// topic is what an event is about. A later event on a topic takes the place of
// an earlier one that nobody has told yet.
type topic struct {
	secret types.UID
	about  string
}

// What events on a peer Secret are about.
const (
	aboutSecret    = "secret"    // whether it is used at all
	aboutReading   = "reading"   // whether the peer can be read
	aboutLiveness  = "contact"   // whether the peer is heard of
	aboutRecords   = "records"   // what of the peer is not believed
	aboutDeletions = "deletions" // what is held
	aboutStore     = "store"     // whether the peer came from a backup
)

// notice is what an event says about a Secret.
type notice struct {
	secret                       *corev1.Secret
	about, kind, reason, message string
}

// event tells about a Secret. Every replica sees the same and only the leader
// tells, so that each thing is told once; what was wrong last is kept for the
// moment in which this replica becomes the leader. It needs mu.
func (s *Set) event(secret *corev1.Secret, about, kind, reason, message string) {
	n, of := notice{secret, about, kind, reason, message}, topic{secret.UID, about}
	switch {
	case s.leads:
		s.tell(n)
	case kind == corev1.EventTypeWarning:
		s.untold[of] = n
	default:
		delete(s.untold, of) // it is right again
	}
}

// tell writes an event; the API allows 1,024 bytes of message. Events of one
// reason and action become one, whatever their messages, so those on being heard
// of have an action of their own.
func (s *Set) tell(n notice) {
	action := "Connect"
	if n.about == aboutLiveness {
		action = "Listen"
	}
	s.opts.Recorder.Eventf(n.secret, nil, n.kind, n.reason, action, "%s", model.Bound(n.message, 1000))
}

// lead makes this replica the one that tells.
func (s *Set) lead() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leads = true
	for _, of := range slices.SortedFunc(maps.Keys(s.untold), func(a, b topic) int {
		return cmp.Or(cmp.Compare(a.secret, b.secret), cmp.Compare(a.about, b.about))
	}) {
		s.tell(s.untold[of])
	}
	clear(s.untold)
}

// metrics of peers carry the label peer: federated Prometheus sets cluster itself.
type metrics struct {
	synced      *prometheus.GaugeVec
	contact     *prometheus.GaugeVec
	held        *prometheus.GaugeVec
	refused     *prometheus.GaugeVec
	rejected    *prometheus.CounterVec
	reconnected *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer) metrics {
	with := promauto.With(registry)
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return with.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return with.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return metrics{
		synced:      gauge("comity_peer_synced", "1 if everything that the peer shares was read since start.", "peer"),
		contact:     gauge("comity_peer_contact", "1 for the state that the peer is in: Connected, Stale or Lost.", "peer", "state"),
		held:        gauge("comity_peer_deletions_held", "Exports of the peer that vanished and are kept, because so many did at once.", "peer"),
		refused:     gauge("comity_peer_secrets_refused", "Peer Secrets that are not used, by reason.", "reason"),
		rejected:    counter("comity_peer_records_rejected_total", "Records of a peer that were read and are not valid.", "peer"),
		reconnected: counter("comity_peer_reconnects_total", "Connections replaced because their watches brought nothing any more.", "peer"),
	}
}

// show replaces what the metrics say of a peer that is there.
func (m *metrics) show(r reading) {
	m.synced.WithLabelValues(string(r.id)).Set(one(r.from != nil))
	for _, state := range []model.LivenessState{model.Connected, model.Stale, model.Lost} {
		m.contact.WithLabelValues(string(r.id), state.String()).Set(one(r.contact.State == state))
	}
	m.held.WithLabelValues(string(r.id)).Set(float64(len(r.guard.Keys())))
}

// forget removes a peer that is gone.
func (m *metrics) forget(id model.ClusterID) {
	of := prometheus.Labels{"peer": string(id)}
	for _, gauge := range []*prometheus.GaugeVec{m.synced, m.contact, m.held} {
		gauge.DeletePartialMatch(of)
	}
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
