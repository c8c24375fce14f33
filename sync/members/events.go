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
	"k8s.io/apimachinery/pkg/runtime"
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
	ReasonLimitExceeded    = remote.ReasonLimitExceeded
)

// topic is what an event is about. A later event on a topic replaces an earlier
// one that is still pending.
type topic struct {
	secret types.UID // empty if the event is not about a Secret
	about  string
}

// What events on a peer Secret are about.
const (
	aboutSecret    = "secret"    // whether it is used at all
	aboutReading   = "reading"   // whether the peer can be read
	aboutLiveness  = "contact"   // the liveness of the peer
	aboutRecords   = "records"   // which records of the peer are invalid
	aboutDeletions = "deletions" // what is held
	aboutSpeed     = "speed"     // whether the peer changes too fast
	aboutStore     = "store"     // whether the peer was restored from a backup
)

// pendingEvent is an event about an object, mostly a Secret.
type pendingEvent struct {
	object                       runtime.Object
	about, kind, reason, message string
}

// event writes an event about a Secret. It needs mu.
func (s *Set) event(secret *corev1.Secret, about, kind, reason, message string) {
	s.post(topic{secret.UID, about}, pendingEvent{secret, about, kind, reason, message})
}

// post writes an event. All replicas observe the same and only the leader writes, so
// that each event is written once. Other replicas keep the last warning on each topic
// for when they become the leader. It needs mu.
func (s *Set) post(of topic, n pendingEvent) {
	switch {
	case s.isLeader:
		s.writeEvent(n)
	case n.kind == corev1.EventTypeWarning:
		s.pending[of] = n
	default:
		delete(s.pending, of) // the problem is over
	}
}

// writeEvent writes an event; the API allows 1,024 bytes of message. Events of one
// reason and action are merged, whatever their messages, so those on liveness have
// an action of their own.
func (s *Set) writeEvent(n pendingEvent) {
	action := "Connect"
	if n.about == aboutLiveness {
		action = "Listen"
	}
	s.opts.Recorder.Eventf(n.object, nil, n.kind, n.reason, action, "%s", model.Bound(n.message, model.MaxEventNote))
}

// becomeLeader makes this replica the one that writes events.
func (s *Set) becomeLeader() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isLeader = true
	for _, of := range slices.SortedFunc(maps.Keys(s.pending), func(a, b topic) int {
		return cmp.Or(cmp.Compare(a.secret, b.secret), cmp.Compare(a.about, b.about))
	}) {
		s.writeEvent(s.pending[of])
	}
	clear(s.pending)
}

// metrics of peers carry the label peer: federated Prometheus sets cluster itself.
type metrics struct {
	synced      *prometheus.GaugeVec
	liveness    *prometheus.GaugeVec
	held        *prometheus.GaugeVec
	refused     *prometheus.GaugeVec
	limited     *prometheus.GaugeVec
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
		liveness:    gauge("comity_peer_contact", "1 for the state that the peer is in: Connected, Stale or Lost; absent while its Secret is missing or refused.", "peer", "state"),
		held:        gauge("comity_peer_deletions_held", "Exports of the peer that are missing and are kept, because it did not withdraw them, or, if it does not state withdrawals, because so many disappeared at once.", "peer"),
		refused:     gauge("comity_peer_secrets_refused", "Peer Secrets that are not used, by reason.", "reason"),
		limited:     gauge("comity_peer_limit_exceeded", "1 if the peer publishes more than is read of one, so that nothing new of it is read, or changes it faster, so that it is read later.", "peer"),
		rejected:    counter("comity_peer_records_rejected_total", "Records of a peer that were read and are not valid.", "peer"),
		reconnected: counter("comity_peer_reconnects_total", "Connections replaced because their watches brought nothing any more.", "peer"),
	}
}

// set sets the gauges of a peer.
func (m *metrics) set(r snapshot) {
	m.synced.WithLabelValues(string(r.id)).Set(one(r.from != nil))
	if r.unused {
		// Of a peer that is not used the heartbeat is not followed.
		m.liveness.DeletePartialMatch(prometheus.Labels{"peer": string(r.id)})
	} else {
		for _, state := range []model.LivenessState{model.Connected, model.Stale, model.Lost} {
			m.liveness.WithLabelValues(string(r.id), state.String()).Set(one(r.liveness.State == state))
		}
	}
	m.held.WithLabelValues(string(r.id)).Set(float64(len(r.heldKeys())))
	m.limited.WithLabelValues(string(r.id)).Set(one(r.limited))
}

// forget removes the gauges of a peer that was removed.
func (m *metrics) forget(id model.ClusterID) {
	of := prometheus.Labels{"peer": string(id)}
	for _, gauge := range []*prometheus.GaugeVec{m.synced, m.liveness, m.held, m.limited} {
		gauge.DeletePartialMatch(of)
	}
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
