// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
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

// FAULT 31: a peer publishes more slices of one export than are read of it.
func TestFault31MoreSlicesThanAreReadOfAnExportAreNamed(t *testing.T) {
	w := exporting(t, 2)
	put := func(i int) {
		slice := sliceOf(1, "10.1.0.1")
		slice.Name, slice.Annotations[model.AnnotationSourceSlice] = fmt.Sprintf("shop.web-1-%04d", i), fmt.Sprintf("web-1-%04d", i)
		w.server.put("endpointslices", slice)
	}
	put(0)
	w.await("the first is read", func() bool { return len(w.published(keyOf(1)).Slices) == 1 })
	for i := range exchange.MaxSliceNames + 1 { // while they are watched: the server lists all in one page, which is limited
		put(i + 1)
	}
	w.await("the limit is named", func() bool {
		problems := w.published(keyOf(1)).Problems
		return len(problems) == 1 && problems[0].Reason == model.ReasonLimitExceeded && problems[0].Cluster == "b" &&
			strings.Contains(problems[0].Message, "publishes 2 EndpointSlices of shop/web-1 more than the 2000 that are read of one export")
	})
	if slices := w.published(keyOf(1)).Slices; len(slices) != exchange.MaxSliceNames || slices[len(slices)-1].Name != "shop.web-1-1999" {
		t.Errorf("%d slices are read", len(slices))
	}
}
