// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
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

// FAULT 31: a peer that changes its exports too fast is reported: once, and until a
// minute after it stopped.
func TestFault31APeerThatChangesTooFastIsReported(t *testing.T) {
	w := newWorld(t)
	w.join()
	at := time.Unix(1000, 0)
	w.set.pacer.mu.Lock()
	w.set.pacer.now, w.set.pacer.after = func() time.Time { return at }, func(time.Duration, func()) {}
	w.set.pacer.mu.Unlock()
	change := func(seconds int) {
		for range seconds * 100 {
			w.set.pacer.changed("b", keyOf(1), 0)
			at = at.Add(10 * time.Millisecond)
		}
		w.set.tick()
	}
	exceeded := func(want float64) {
		t.Helper()
		if got := w.metric("comity_peer_limit_exceeded"); got != want {
			t.Errorf("comity_peer_limit_exceeded is %v, want %v", got, want)
		}
	}
	change(5)
	exceeded(0) // a rollout
	change(10)
	exceeded(1)
	if got := w.message(v1alpha1.PeerWithinLimits); !strings.Contains(got, "cluster b: the limit of 10 changes of shop/web-1 per second is exceeded") || !strings.Contains(got, "remedy") {
		t.Errorf("condition: %s", got)
	}
	change(10)
	exceeded(1)
	at = at.Add(time.Minute)
	w.set.tick()
	exceeded(0)
	if got := w.condition(v1alpha1.PeerWithinLimits); got != "True WithinLimits" {
		t.Errorf("condition %s", got)
	}
	reports := 0
	for _, event := range w.happened() {
		if strings.Contains(event, "LimitExceeded") {
			reports++
		}
	}
	if reports != 1 {
		t.Errorf("%d events; want one", reports)
	}
}

// FAULT 31: a peer of which more is published than is read shows in the metric, too.
func TestFault31APeerThatPublishesTooMuchShowsInTheMetric(t *testing.T) {
	w := newWorld(t)
	w.set.opts.Limits.Exports = 2
	w.server.put("exportrecords", record(shared, 1), record(shared, 2), record(shared, 3))
	w.use(peer())
	w.await("the condition says so", func() bool {
		return w.condition(v1alpha1.PeerWithinLimits) == "False LimitExceeded" && strings.Contains(w.message(v1alpha1.PeerWithinLimits), "2 ExportRecords")
	})
	w.await("the metric is set", func() bool { return w.metric("comity_peer_limit_exceeded") == 1 })
	w.server.remove("exportrecords", shared, record(shared, 3).Name)
	w.await("the metric is reset", func() bool { return w.metric("comity_peer_limit_exceeded") == 0 })
}
