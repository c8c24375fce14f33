// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/model"
)

// importMetrics are the sources of imports by row of the import table, counted when they
// are read.
type importMetrics struct{ observations *Observations }

func newImportMetrics(o *Observations) importMetrics { return importMetrics{o} }

// gauges are the metrics, of which nothing is counted yet.
func (importMetrics) gauges() [3]*prometheus.GaugeVec {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	return [...]*prometheus.GaugeVec{
		gauge("comity_import_sources", "Exports that imports consist of, by cluster and by the row of the import table that applies.", "peer", "state"),
		gauge("comity_imports_frozen", "Imports of which no property changes, by the cluster that decides them.", "peer"),
		gauge("comity_takeovers_held", "Exports that would change an import and wait for a confirmation, by cluster.", "peer"),
	}
}

// Describe implements prometheus.Collector.
func (m importMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, gauge := range m.gauges() {
		gauge.Describe(out)
	}
}

// Collect implements prometheus.Collector.
func (m importMetrics) Collect(out chan<- prometheus.Metric) {
	gauges := m.gauges()
	sources, frozen, waiting := gauges[0], gauges[1], gauges[2]
	m.observations.eachImport(func(_ types.NamespacedName, found *decide.ImportFinding) {
		for _, s := range found.Sources {
			sources.WithLabelValues(string(s.Cluster), s.State.String()).Inc()
		}
		if found.Freeze != nil {
			frozen.WithLabelValues(string(found.Freeze.By.Cluster)).Inc()
		}
		for _, t := range found.Takeovers {
			waiting.WithLabelValues(string(t.By.Cluster)).Inc()
		}
	})
	for _, gauge := range gauges {
		gauge.Collect(out)
	}
}

// imports says what the imports of this cluster have of others: it is a members.Imports.
type imports struct{ base *base }

// Of counts what of a cluster is missing, or waits for a confirmation.
func (i imports) Of(cluster model.ClusterID) model.ImportCounts {
	var out model.ImportCounts
	count := func(n *int, first *types.NamespacedName, key types.NamespacedName) {
		if *n == 0 || model.CompareKeys(key, *first) < 0 {
			*first = key
		}
		*n++
	}
	i.base.observations.eachImport(func(key types.NamespacedName, found *decide.ImportFinding) {
		for _, s := range found.Sources {
			if s.Cluster == cluster && s.State == model.SourceMissing {
				count(&out.Missing, &out.FirstMissing, key)
			}
		}
		for _, t := range found.Takeovers {
			if t.By.Cluster == cluster {
				count(&out.Waiting, &out.FirstWaiting, key)
			}
		}
	})
	return out
}

// Listed reports whether an import lists a cluster, or that is not known.
func (i imports) Listed(cluster model.ClusterID) bool {
	listed, err := isListed(context.Background(), i.base.client, cluster) // a cache: it does not wait
	if err != nil {
		ctrl.Log.WithName("peer").Error(err, "it is not known whether imports list a cluster", "peer", cluster)
	}
	return listed || err != nil
}

func (o *Observations) eachImport(visit func(types.NamespacedName, *decide.ImportFinding)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, found := range o.imported {
		visit(key, &found)
	}
}
