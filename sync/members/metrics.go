// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
)

// counters of peers carry the label peer: federated Prometheus sets cluster itself.
type counters struct{ rejected, reconnected *prometheus.CounterVec }

// newCounters registers them, and the gauges of s.
func newCounters(registry prometheus.Registerer, s *Set) counters {
	if registry != nil {
		registry.MustRegister(gauges{s})
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return promauto.With(registry).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"peer"})
	}
	return counters{
		rejected:    counter("comity_peer_records_rejected_total", "Records of a peer that were read and are not valid."),
		reconnected: counter("comity_peer_reconnects_total", "Connections replaced because their watches brought nothing any more."),
	}
}

// gauges say how the members are at the moment.
type gauges struct{ set *Set }

// Describe implements prometheus.Collector. A Set without members describes nothing.
func (g gauges) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, out) }

// Collect implements prometheus.Collector.
func (g gauges) Collect(out chan<- prometheus.Metric) {
	g.set.mu.Lock()
	defer g.set.mu.Unlock()
	for id, m := range g.set.members {
		gauge := func(name, help string, is bool, labels prometheus.Labels) {
			value := 0.0
			if is {
				value = 1
			}
			out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, []string{"peer"}, labels), prometheus.GaugeValue, value, string(id))
		}
		gauge("comity_peer_synced", "1 if everything that the peer shares was read since start.", m.synced(), nil)
		gauge("comity_peer_limit_exceeded", "1 if the peer publishes more than is read of one, or changes it faster, so that it is not read, or later.", m.limited() != remote.Failure{}, nil)
		if m.claim.unusable() { // whose heartbeat is not followed
			continue
		}
		for _, state := range []model.LivenessState{model.Connected, model.Stale, model.Lost} {
			gauge("comity_peer_contact", "1 for the state that the peer is in: Connected, Stale or Lost; absent while its Peer is refused.",
				m.heartbeat.tracker.Liveness().State == state, prometheus.Labels{"state": state.String()})
		}
	}
}
