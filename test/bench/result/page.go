// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Markdown is all results as tables, with the machine described.
func (r *Results) Markdown() string {
	var page strings.Builder
	m := r.Machine
	fmt.Fprintf(&page, "Measured with %d CPUs for all clusters, agents and the benchmark together (%s, %d GiB, %s, kernel %s), %s, %s. "+
		"Every cluster is an etcd without fsync and an API server on that machine, with the agent as a process beside it. "+
		"Load is the machine's one-minute average right before: what is above the number of CPUs was others' work or our own preparation.\n",
		m.CPUs, m.Model, m.MemoryGiB, m.OS, m.Kernel, m.Go, m.Versions)
	for _, part := range []func(*strings.Builder){r.propagation, r.memory, r.change, r.restart} {
		part(&page)
	}
	page.WriteString(bounds)
	return page.String()
}

// bounds explains what limits the figures.
const bounds = `
## What bounds these figures

* **Propagation** to other clusters is one apply at the API server of the first cluster and, after its watch event, one at that of
  each other. About six sevenths of Comity's time between two clusters are those two. The rest, well under a millisecond in each of
  the two agents, is the workqueue, reading the caches, planning and encoding. The slice of the first cluster's own import is a third
  write, which is made at the same time as the one in the exchange. Policies are not evaluated again for a change of endpoints.
  The p99 of 1,000 changes is the tenth slowest, and the ratio of two such differs by a third from run to run.
* **Among more clusters** on one machine, the last write waits for the CPUs that all API servers and agents share. The relay is one
  process, and Comity one in each cluster: what an agent does before its write is done on those CPUs once for every cluster.
* **Memory**: the caches of imported and of published slices hold each slice as protobuf. It is decoded
  when an import is reconciled, which costs some 15 µs for a slice of 10 endpoints and 70 to 150 µs for one of 100.
  Resident memory is about twice the live heap, since Go's collector lets the heap double before it runs; GOGC or GOMEMLIMIT in the
  Deployment trade that for CPU time.
* **A cold start** is bound by the API server: each import is a Service, a slice, a ServiceImport, its status and a report to the exporting cluster.
`

func (r *Results) propagation(page *strings.Builder) {
	if len(r.Propagation) == 0 {
		return
	}
	page.WriteString("\n## Propagation\n\nFrom the answer to a change of one endpoint in one cluster until it is written elsewhere: *remote* until the last other cluster shows it, " +
		"*local* until the import of the cluster itself shows it. The relay is a bare client-go program with the agent's credentials, without cache, queue, policy or status. " +
		"Its remote way is one apply in the first cluster and one in each other, its local way one apply. All ways are measured in turn in the same run.\n\n" +
		"| clusters | exports | changes | way | | p50 | p90 | p99 | max | writes/change | load |\n|---:|---:|---:|---|---|---:|---:|---:|---:|---:|---:|\n")
	for _, p := range r.sorted() {
		p.Remote.rows(page, fmt.Sprintf("%d | %d | %d | remote", p.Clusters, p.Exports, p.Changes), fmt.Sprintf("%.2f | %.1f", p.Writes, p.Load), p.Clusters)
		if p.Local != (Comparison{}) {
			p.Local.rows(page, "| | | local", "|", 1)
		}
	}
}

// rows are those of one way: Comity, relay and ratio.
func (c Comparison) rows(page *strings.Builder, first, last string, relayWrites int) {
	fmt.Fprintf(page, "| %s | Comity | %s | %s |\n", first, times(c.Comity), last)
	fmt.Fprintf(page, "| | | | | relay | %s | %d | |\n", times(c.Relay), relayWrites)
	fmt.Fprintf(page, "| | | | | **ratio** | **%.2f** | %.2f | **%.2f** | %.2f | | |\n", ratio(c.Comity.P50, c.Relay.P50),
		ratio(c.Comity.P90, c.Relay.P90), ratio(c.Comity.P99, c.Relay.P99), ratio(c.Comity.Max, c.Relay.Max))
}

func times(q Quantiles) string {
	return fmt.Sprintf("%.1f ms | %.1f ms | %.1f ms | %.1f ms", milliseconds(q.P50), milliseconds(q.P90), milliseconds(q.P99), milliseconds(q.Max))
}

func (r *Results) sorted() []Propagation {
	return slices.SortedFunc(slices.Values(r.Propagation), func(a, b Propagation) int {
		if a.Clusters != b.Clusters {
			return a.Clusters - b.Clusters
		}
		return a.Exports - b.Exports
	})
}

func (r *Results) memory(page *strings.Builder) {
	if r.Memory == nil {
		return
	}
	fmt.Fprintf(page, "\n## Memory\n\nThe agent of an importing cluster, with slices of %d endpoints: heap in use after garbage collection, and what the kernel counts "+
		"(which includes garbage and what the heap grew to when the slices came).\n\n| slices | live heap | resident |\n|---:|---:|---:|\n", r.Memory.Endpoints)
	for _, p := range r.Memory.Points {
		fmt.Fprintf(page, "| %d | %.1f MiB | %.1f MiB |\n", p.Slices, mib(p.Live), mib(p.Resident))
	}
	live, resident := r.Memory.PerSlice()
	fmt.Fprintf(page, "| **per mirrored slice** | **%.0f bytes** | %.0f bytes |\n", live, resident)
}

func mib(bytes int) float64 { return float64(bytes) / (1 << 20) }

func (r *Results) change(page *strings.Builder) {
	if r.Change == nil {
		return
	}
	c := r.Change
	fmt.Fprintf(page, "\n## Writes for one change\n\nOne endpoint changes in a service of %d (%d slices) that is exported from a, among %d clusters; %d changes.\n\n"+
		"| writes by the agent of | per change |\n|---|---:|\n", c.Endpoints, c.Slices, c.Clusters, c.Changes)
	for _, what := range slices.Sorted(maps.Keys(c.Writes)) {
		fmt.Fprintf(page, "| %s | %.2f |\n", what, float64(c.Writes[what])/float64(c.Changes))
	}
}

func (r *Results) restart(page *strings.Builder) {
	if r.Restart == nil {
		return
	}
	s := r.Restart
	fmt.Fprintf(page, "\n## Starts with %d imports\n\nThe exporting cluster runs with `--import=false`, so that what is measured is the other one.\n\n| | time | writes |\n|---|---:|---:|\n", s.Imports)
	fmt.Fprintf(page, "| cold start, until the last slice is written | %s | %d |\n", seconds(s.Cold), s.ColdWrites)
	for _, c := range s.Restarts {
		who := "importing"
		if c.Exporting {
			who = "exporting"
		}
		fmt.Fprintf(page, "| converged restart of the %s agent, until it has reconciled everything | %s | **%d** |\n", who, seconds(c.Took), c.Writes)
	}
	fmt.Fprintf(page, "\nHeartbeats, leader election and events are not counted as writes. In the end the importing agent holds %.0f MiB (live heap), %.0f MiB resident. Load before: %.1f.\n",
		mib(s.Live), mib(s.Resident), s.Load)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
