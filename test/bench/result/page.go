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

// Markdown is all results as tables, each with the machine described.
func (r *Results) Markdown() string {
	var page strings.Builder
	page.WriteString("Every cluster is an etcd without fsync and an API server on one machine, with the agent as a process beside it. " +
		"All clusters, agents and the benchmark share its CPUs. " +
		"Load is the machine's one-minute average right before: what is above the number of CPUs was others' work or our own preparation.\n")
	for _, part := range []struct {
		name string
		show func(*strings.Builder)
	}{
		{"propagation", r.propagation}, {"memory", r.memory}, {"change", r.change}, {"restart", r.restart},
		{"hostile", r.hostile}, {"admission", r.admission}, {"scale", r.scale},
	} {
		before := page.Len()
		part.show(&page)
		if page.Len() > before {
			fmt.Fprintf(&page, "\n%s\n", r.Machines[part.name])
		}
	}
	page.WriteString(bounds)
	return page.String()
}

// bounds explains what limits the figures.
const bounds = `
## What bounds these figures

* **Propagation** to other clusters is one write at the API server of the first cluster and, after its watch event, one at that of
  each other. About six sevenths of Comity's time between two clusters are those two. The rest, well under a millisecond in each of
  the two agents, is the workqueue, reading the caches, planning and encoding. Comity replaces a slice in which only endpoints or
  ports differ, which costs an API server less than the relay's apply. The slice of the first cluster's own import is a third
  write, which is made at the same time as the one in the exchange. Policies are not evaluated again for a change of endpoints.
  The p99 of 1,000 changes is the tenth slowest, and the ratio of two such differs by a third from run to run.
* **Among more clusters** on one machine, the last write waits for the CPUs that all API servers and agents share. The relay is one
  process, and Comity one in each cluster: what an agent does before its write is done on those CPUs once for every cluster.
* **Memory**: the caches of imported and of published slices hold each slice as protobuf. It is decoded
  when an import is reconciled, which costs some 15 µs for a slice of 10 endpoints and 70 to 150 µs for one of 100.
  Resident memory is about twice the live heap, since Go's collector lets the heap double before it runs; GOGC or GOMEMLIMIT in the
  Deployment trade that for CPU time.
* **A cold start** is bound by the API server: each import is a Service, a slice, a ServiceImport, its status and a report to the exporting cluster.
* **Beside a hostile member**, all CPUs are busy in each row but the first. What a member costs the others is what is being
  reconciled for it when they change something: whoever used least of the workers' time comes next, and who used more than its
  share has one worker, which rests for a multiple of the time that its item took.
`

func (r *Results) propagation(page *strings.Builder) {
	if len(r.Propagation) == 0 {
		return
	}
	page.WriteString("\n## Propagation\n\nFrom the answer to a change of one endpoint in one cluster until it is written elsewhere: *remote* until the last other cluster shows it, " +
		"*local* until the import of the cluster itself shows it. The relay is a bare client-go program with the agent's credentials, without cache, queue, policy or status. " +
		"Its remote way is one apply in the first cluster and one in each other, its local way one apply. The full relay makes the writes of both ways at the same time, as Comity does; " +
		"but Comity updates slices, which costs an API server less than an apply. All ways are measured in turn in the same run.\n\n" +
		"| clusters | exports | changes | way | | p50 | p90 | p99 | max | writes/change | load |\n|---:|---:|---:|---|---|---:|---:|---:|---:|---:|---:|\n")
	for _, p := range r.sorted() {
		p.Remote.rows(page, fmt.Sprintf("%d | %d | %d | remote", p.Clusters, p.Exports, p.Changes), fmt.Sprintf("%.2f | %.1f", p.Writes, p.Load), p.Clusters, p.Clusters+1)
		if p.Local != (Comparison{}) {
			p.Local.rows(page, "| | | local", "|", 1, p.Clusters+1)
		}
	}
}

// rows are those of one way: Comity, and each relay with its ratio.
func (c Comparison) rows(page *strings.Builder, first, last string, relayWrites, fullWrites int) {
	fmt.Fprintf(page, "| %s | Comity | %s | %s |\n", first, times(c.Comity), last)
	c.relayRows(page, "relay", c.Relay, relayWrites)
	if c.Full != (Quantiles{}) {
		c.relayRows(page, "full relay", c.Full, fullWrites)
	}
}

func (c Comparison) relayRows(page *strings.Builder, name string, relay Quantiles, writes int) {
	fmt.Fprintf(page, "| | | | | %s | %s | %d | |\n", name, times(relay), writes)
	fmt.Fprintf(page, "| | | | | **ratio** | **%.2f** | %.2f | **%.2f** | %.2f | | |\n",
		ratio(c.Comity.P50, relay.P50), ratio(c.Comity.P90, relay.P90), ratio(c.Comity.P99, relay.P99), ratio(c.Comity.Max, relay.Max))
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
	if s.Bare.Writes > 0 {
		fmt.Fprintf(page, "| the same, until the last of all writes | %s | %.2f for an import |\n", seconds(s.ColdAll), float64(s.ColdWrites)/float64(s.Imports))
		fmt.Fprintf(page, "| a bare client that makes the same requests, those of %d imports at once | %s | %d |\n", s.Bare.AtOnce, seconds(s.Bare.Took), s.Bare.Writes)
		fmt.Fprintf(page, "| **ratio** of the cold start to the bare client | **%.2f** | |\n", s.ColdAll.Seconds()/s.Bare.Took.Seconds())
	}
	for _, c := range s.Restarts {
		who := "importing"
		if c.Exporting {
			who = "exporting"
		}
		fmt.Fprintf(page, "| converged restart of the %s agent, until it has reconciled everything | %s | **%d** |\n", who, seconds(c.Took), c.Writes)
	}
	fmt.Fprintf(page, "\nThe bare client sends the requests that the agent sent, as the audit log has them, with an agent's credentials and to another cluster without imports, after the agents ended. Heartbeats, leader election and events are not counted as writes. In the end the importing agent holds %.0f MiB (live heap), %.0f MiB resident. Load before: %.1f.\n",
		mib(s.Live), mib(s.Resident), s.Load)
}

func (r *Results) hostile(page *strings.Builder) {
	if r.Hostile == nil {
		return
	}
	h := r.Hostile
	fmt.Fprintf(page, "\n## Beside a hostile member\n\nChanges of one endpoint from cluster a to c, %d times %s for each row, in turns, while cluster b, whose agent was replaced, does four things without pause: "+
		"one loop rewrites a slice of 430 kB of the same Service, which is refused, and one the largest slice that is imported, one creates ExportRecords, and one makes its MemberRecord valid and invalid. In all rows the machine does that work, and the control plane of b has only the processor time that nobody else wants (nice 19), as elsewhere it has processors of its own. They differ in what is done where the other members read it, and what in a namespace that nobody reads. "+
		"A member within its budget creates exports, which its budget allows, and changes a slice of 100 endpoints five times a second; a hostile one rewrites the large slices as well. Load before: %.1f.\n\n"+
		"| b is | changes | p50 | p90 | p99 | max | writes by b | writes by c's agent | its peak resident memory |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n", h.Rounds, seconds(h.For), h.Load)
	for _, p := range h.Phases {
		fmt.Fprintf(page, "| %s | %d | %s | %d | %d | %.0f MiB |\n", p.Name, p.Changes, times(p.Took), p.Attacks, p.Writes, mib(p.Peak))
	}
	// Compared with a member that nobody reads, and with one within its budget.
	for base := 1; base < min(3, len(h.Phases)); base++ {
		for _, p := range h.Phases[base+1:] {
			took, before := p.Took, h.Phases[base].Took
			fmt.Fprintf(page, "| **growth** from %s to %s | | **%.2f** | %.2f | **%.2f** | %.2f | | | |\n", h.Phases[base].Name, p.Name,
				ratio(took.P50, before.P50), ratio(took.P90, before.P90), ratio(took.P99, before.P99), ratio(took.Max, before.Max))
		}
	}
}

func (r *Results) admission(page *strings.Builder) {
	if r.Admission == nil {
		return
	}
	a := r.Admission
	fmt.Fprintf(page, "\n## Admission\n\nOne request to create a ServiceExport, from the webhook's `ServeHTTP` until it returns, with the process that evaluates policies, without TLS and network: "+
		"decoding the AdmissionReview (%s), reading Service, Namespace and peers from caches, evaluating the rules of the three policies that Comity ships, and encoding the answer. "+
		"%d requests one after the other, to all namespaces in turn. All engines are behind the same webhook and get the same facts. "+
		"Gatekeeper's way is OPA's `rego.New` with a shared compiler for each constraint; CEL has the rules written in CEL and compiled before. Load before: %.1f.\n\n"+
		"| clusters | namespaces | engine | p50 | p90 | p99 | max | allocations | bytes |\n|---:|---:|---|---:|---:|---:|---:|---:|---:|\n",
		"with managed fields, as API servers send it", a.Requests, a.Load)
	for _, e := range a.Engines {
		fmt.Fprintf(page, "| %d | %d | %s | %s | %.0f | %.0f |\n", e.Clusters, e.Namespaces, e.Name, microseconds(e.Took), e.Allocations, e.Bytes)
	}
	t := a.Audit
	fmt.Fprintf(page, "\nWhile %d stored exports (%d clusters, %d namespaces) are evaluated again and again, %d requests a second for %s: p50 %.2f ms, p90 %.2f ms, **p99 %.2f ms**, max %.2f ms, "+
		"from when a request was due. Meanwhile %d exports were evaluated.\n",
		t.Exports, t.Clusters, t.Namespaces, t.Rate, seconds(t.For), milliseconds(t.Took.P50), milliseconds(t.Took.P90), milliseconds(t.Took.P99), milliseconds(t.Took.Max), t.Evaluations)
}

func microseconds(q Quantiles) string {
	return fmt.Sprintf("%d µs | %d µs | %d µs | %d µs", q.P50.Microseconds(), q.P90.Microseconds(), q.P99.Microseconds(), q.Max.Microseconds())
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
