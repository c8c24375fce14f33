// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
)

// metrics of peers carry the label peer: federated Prometheus sets cluster itself.
type metrics struct {
	synced      *prometheus.GaugeVec
	liveness    *prometheus.GaugeVec
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
		liveness:    gauge("comity_peer_contact", "1 for the state that the peer is in: Connected, Stale or Lost; absent while its Peer is refused.", "peer", "state"),
		limited:     gauge("comity_peer_limit_exceeded", "1 if the peer publishes more than is read of one, so that nothing new of it is read, or changes it faster, so that it is read later.", "peer"),
		rejected:    counter("comity_peer_records_rejected_total", "Records of a peer that were read and are not valid.", "peer"),
		reconnected: counter("comity_peer_reconnects_total", "Connections replaced because their watches brought nothing any more.", "peer"),
	}
}

// set sets the gauges of a member.
func (m *metrics) set(of *member) {
	id := string(of.id)
	m.synced.WithLabelValues(id).Set(one(of.synced()))
	m.limited.WithLabelValues(id).Set(one(of.limited() != remote.Failure{}))
	if of.claim.unusable() { // whose heartbeat is not followed
		m.liveness.DeletePartialMatch(prometheus.Labels{"peer": id})
		return
	}
	for _, state := range []model.LivenessState{model.Connected, model.Stale, model.Lost} {
		m.liveness.WithLabelValues(id, state.String()).Set(one(of.heartbeat.tracker.Liveness().State == state))
	}
}

// forget removes the gauges of what is no member any more.
func (m *metrics) forget(id model.ClusterID) {
	of := prometheus.Labels{"peer": string(id)}
	for _, gauge := range []*prometheus.GaugeVec{m.synced, m.liveness, m.limited} {
		gauge.DeletePartialMatch(of)
	}
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
