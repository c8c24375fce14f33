// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/remote"
)

// metric is the value of a gauge for peer b.
func (w *world) metric(name string) float64 {
	w.t.Helper()
	families, err := w.set.opts.Registry.(*prometheus.Registry).Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && m.GetLabel()[0].GetValue() == "b" {
				return m.GetGauge().GetValue()
			}
		}
	}
	w.t.Fatalf("there is no metric %s", name)
	return 0
}

// FAULT 31: a peer of which more is published than is read shows in the metric, too.
func TestFault31APeerThatPublishesTooMuchShowsInTheMetric(t *testing.T) {
	w := newWorld(t)
	connect := w.set.connect
	w.set.connect = func(ctx context.Context, opts remote.Options) (*remote.Connection, error) {
		opts.Limits.Exports = 2
		return connect(ctx, opts)
	}
	w.server.put("exportrecords", record(shared, 1), record(shared, 2), record(shared, 3))
	w.use(peer())
	w.await("the condition says so", func() bool {
		return w.condition(v1alpha1.PeerWithinLimits) == "False LimitExceeded" && strings.Contains(w.message(v1alpha1.PeerWithinLimits), "2 ExportRecords")
	})
	w.await("the metric is set", func() bool { return w.metric("comity_peer_limit_exceeded") == 1 })
	w.server.remove("exportrecords", shared, record(shared, 3).Name)
	w.await("the metric is reset", func() bool { return w.metric("comity_peer_limit_exceeded") == 0 })
}
