// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package result

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func sample() *Results {
	r := &Results{Machines: map[string]Machine{
		"memory": {CPUs: 2, Model: "A <fast> one", Go: "go1.26"},
		"change": {Build: "abc", Day: "2026-11-01", CPUs: 3, Model: "A new one", Versions: "etcd v3"},
	}}
	q := Quantiles{P50: 8 * time.Millisecond, P90: 10 * time.Millisecond, P99: 20 * time.Millisecond, Max: 30 * time.Millisecond}
	half := Quantiles{P50: 4 * time.Millisecond, P90: 5 * time.Millisecond, P99: 10 * time.Millisecond, Max: 15 * time.Millisecond}
	r.AddPropagation(Propagation{Clusters: 5, Exports: 1, Changes: 10, Remote: Comparison{Comity: q, Relay: q}})
	r.AddPropagation(Propagation{Clusters: 2, Exports: 100, Changes: 10, Remote: Comparison{Comity: q, Relay: q}, Local: Comparison{Comity: q, Relay: half}})
	r.Memory = &Memory{Endpoints: 10, Points: []MemoryPoint{{0, 1000, 5000}, {100, 301_000, 505_000}, {200, 501_000, 905_000}}}
	r.Change = &Change{Clusters: 3, Endpoints: 1000, Slices: 10, Changes: 20, Writes: map[string]int{"b: patch (import)": 20}}
	r.Restart = &Restart{Imports: 10000, Cold: time.Minute, Restarts: []Converged{{Took: time.Second}}}
	r.Hostile = &Hostile{For: 2 * time.Minute, Phases: []HostilePhase{{Name: "none"}, {Name: "unread", Took: half}, {Name: "good", Took: half, Changes: 7, Attacks: 8, Writes: 9, Peak: 3 << 20}, {Name: "bad", Took: q}, {Name: "worse", Took: q}}}
	r.Admission = &Admission{
		Requests: 4000, Engines: []AdmissionEngine{{Name: "Comity", Clusters: 50, Namespaces: 200, Took: Quantiles{P50: 90 * time.Microsecond, P99: time.Millisecond}, Allocations: 400, Bytes: 3e4}},
		Audit: AdmissionAudit{Exports: 10000, Rate: 200, For: time.Minute, Took: q, Evaluations: 77},
	}
	r.Scale = &Scale{Rate: 50, Points: []ScalePoint{
		{Members: 10, Exports: 1000, Endpoints: 10_000, Converged: 20 * time.Second, In: half, Out: q, Live: 20 << 20},
		{Members: 30, Exports: 1000, Endpoints: 10_000, Converged: 24 * time.Second, In: q, Out: q, Live: 24 << 20, Connections: 29},
		{Members: 10, Exports: 3000, Endpoints: 10_000, Converged: 60 * time.Second, In: q, Out: q, Live: 30 << 20},
		{Members: 100, Exports: 10_000, Endpoints: 100_000, Converged: time.Minute, In: q, Out: q},
		{Hub: true, Members: 10, Exports: 1000, Endpoints: 10_000, In: q, Out: q},
	}}
	return r
}

func TestWhatWasMeasuredBeforeStaysUntilMeasuredAgain(t *testing.T) {
	dir := t.TempDir()
	if err := sample().Save(dir); err != nil {
		t.Fatal(err)
	}
	got, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(), got); diff != "" {
		t.Errorf("(-saved +loaded):\n%s", diff)
	}
	again := Propagation{Clusters: 5, Exports: 1, Changes: 99, Remote: Comparison{Comity: Quantiles{P50: 1}, Relay: Quantiles{P50: 1}}}
	got.AddPropagation(again)
	if len(got.Propagation) != 2 || got.sorted()[1].Changes != 99 || got.sorted()[0].Exports != 100 {
		t.Errorf("got %+v, want the newest of each and fewer clusters first", got.Propagation)
	}
}

func TestNothingMeasuredYetIsNoError(t *testing.T) {
	got, err := Load(t.TempDir())
	if diff := cmp.Diff(&Results{}, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
}

func TestThePageHasEachFigure(t *testing.T) {
	page := sample().Markdown()
	for _, want := range []string{
		"| 2 | 100 | 10 | remote | Comity | 8.0 ms | 10.0 ms | 20.0 ms | 30.0 ms |", "**ratio** | **1.00**",
		"| | | | local | Comity | 8.0 ms |", "| relay | 4.0 ms |", "**ratio** | **2.00** | 2.00 | **2.00** |",
		"Measured with an earlier build: 2 CPUs (A <fast> one, 0 GiB, , kernel ), go1.26.\n", "Measured with abc on 2026-11-01: 3 CPUs (A new one, 0 GiB, , kernel ), , etcd v3.\n",
		"**2000 bytes** | 4000 bytes", // between the points that hold any
		"| good | 7 | 4.0 ms | 5.0 ms | 10.0 ms | 15.0 ms | 8 | 9 | 3 MiB |", "| **growth** from unread to good | | **1.00** |", "| **growth** from good to bad | | **2.00** | 2.00 | **2.00** | 2.00 |", "| **growth** from good to worse | | **2.00** |",
		"| 50 | 200 | Comity | 90 µs | 0 µs | 1000 µs | 0 µs | 400 | 30000 |", "While 10000 stored exports", "**p99 20.00 ms**",
		"| mesh | 10 | 1000 | 10000 | 20.0 s | 4, **10**, 15 ms | 8, **20**, 30 ms | **0** | 20 MiB |",
		"| mesh | 10 members more | +2.0 s | +5.0 ms | +2.0 MiB | +0.000 | +0.000 | +14.5 |", "| mesh | 1,000 exports more | +20.0 s | +5.0 ms | +5.0 MiB |",
		"b: patch (import) | 1.00", "cold start, until the last slice is written | 60.0 s | 0", "importing agent, until it has reconciled everything | 1.0 s | **0**",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}
