// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"strings"
	"time"
)

// Scale is how one member of a large clusterset fares.
type Scale struct {
	Rate   int // changes a second
	Points []ScalePoint
	Load   float64
}

// ScalePoint is one size of the clusterset.
type ScalePoint struct {
	Hub                         bool
	Members, Exports, Endpoints int
	// Converged is from the start of the agent until it has written the last slice, for which it
	// made so many Writes and used so much time of CPUs.
	Converged, ConvergedCPU time.Duration
	Writes                  int
	// In is the time of changes in other members until they are written in the measured one, Out
	// that of its own until they are published.
	In, Out    Quantiles
	Changes    int
	RestWrites int
	// Live, Resident and Peak are what the agent holds, in bytes, Children what the processes
	// hold in which it evaluates policies, Server what the API server does in which it publishes.
	Live, Resident, Peak, Children, Server int
	Rest, Busy                             ScaleUse
	// Connections are those of the agent to all other members, or the hub; ServerWatches those
	// that the others keep open at the API server in which it publishes, of those that real members need.
	Connections, ServerWatches, ServerWatchesNeeded int
}

// ScaleUse is how many CPUs are in use.
type ScaleUse struct{ Agent, Server float64 }

func (p ScalePoint) String() string {
	return fmt.Sprintf("converged in %s; in p50 %.1f ms, p99 %.1f ms, out p50 %.1f ms, p99 %.1f ms of %d changes; %d writes at rest; agent %.0f MiB (%.0f live, peak %.0f), children %.0f MiB, server %.0f MiB; "+
		"CPUs at rest %.3f and %.3f, with changes %.3f and %.3f; %d connections, %d watches",
		seconds(p.Converged), milliseconds(p.In.P50), milliseconds(p.In.P99), milliseconds(p.Out.P50), milliseconds(p.Out.P99), p.Changes, p.RestWrites,
		mib(p.Resident), mib(p.Live), mib(p.Peak), mib(p.Children), mib(p.Server), p.Rest.Agent, p.Rest.Server, p.Busy.Agent, p.Busy.Server, p.Connections, p.ServerWatches)
}

func (p ScalePoint) topology() string {
	if p.Hub {
		return "hub"
	}
	return "mesh"
}

const scaleText = `
## A hundred members

One member is measured; the others are simulated. In a mesh, an HTTP server lists and sends what they publish, as their API servers do; in a hub, that is in
its API server. The others keep their watches open at the API server in which the measured member publishes; if these are too many for the machine, only those
that get events. Each takes some 100 kB there. Each Service is exported by four members, and each export has one slice.
What is measured, with changes at %d per second, of which one in ten is in the measured member:

* *converged*: from the start of an agent that has imported nothing from others until its last slice is written;
* *in*: from a change in another member until it is written in the measured one; *out*: from one there until it is published. A change passes both;
* *resident*: of the agent, with its peak, and of the two processes that evaluate its policies, without the pages of the program that they share with it;
* *CPUs*: at rest and with these changes, of the agent with those processes, and of the API server in which it publishes: its own, or the hub.

`

// scaleColumns are the heads of the table and what a point has there.
var scaleColumns = []struct {
	head string
	of   func(ScalePoint) string
}{
	{"topology", ScalePoint.topology},
	{"members", func(p ScalePoint) string { return fmt.Sprint(p.Members) }},
	{"exports", func(p ScalePoint) string { return fmt.Sprint(p.Exports) }},
	{"endpoints", func(p ScalePoint) string { return fmt.Sprint(p.Endpoints) }},
	{"converged", func(p ScalePoint) string { return seconds(p.Converged) }},
	{"in: p50, **p99**, max", func(p ScalePoint) string { return threeTimes(p.In) }},
	{"out: p50, **p99**, max", func(p ScalePoint) string { return threeTimes(p.Out) }},
	{"writes at rest", func(p ScalePoint) string { return fmt.Sprintf("**%d**", p.RestWrites) }},
	{"live heap", func(p ScalePoint) string { return fmt.Sprintf("%.0f MiB", mib(p.Live)) }},
	{"resident: agent, peak, policies", func(p ScalePoint) string {
		return fmt.Sprintf("%.0f, %.0f, %.0f MiB", mib(p.Resident), mib(p.Peak), mib(p.Children))
	}},
	{"CPUs of the agent", func(p ScalePoint) string { return fmt.Sprintf("%.2f, %.2f", p.Rest.Agent, p.Busy.Agent) }},
	{"connections", func(p ScalePoint) string { return fmt.Sprint(p.Connections) }},
	{"API server: watches", func(p ScalePoint) string { return fmt.Sprintf("%d of %d", p.ServerWatches, p.ServerWatchesNeeded) }},
	{"resident", func(p ScalePoint) string { return fmt.Sprintf("%.0f MiB", mib(p.Server)) }},
	{"CPUs", func(p ScalePoint) string { return fmt.Sprintf("%.2f, %.2f", p.Rest.Server, p.Busy.Server) }},
}

func threeTimes(q Quantiles) string {
	return fmt.Sprintf("%.0f, **%.0f**, %.0f ms", milliseconds(q.P50), milliseconds(q.P99), milliseconds(q.Max))
}

func (r *Results) scale(page *strings.Builder) {
	if r.Scale == nil {
		return
	}
	fmt.Fprintf(page, scaleText, r.Scale.Rate)
	for _, c := range scaleColumns {
		fmt.Fprintf(page, "| %s ", c.head)
	}
	page.WriteString("|\n" + strings.Repeat("|---:", len(scaleColumns)) + "|\n")
	for _, p := range r.Scale.Points {
		for _, c := range scaleColumns {
			fmt.Fprintf(page, "| %s ", c.of(p))
		}
		page.WriteString("|\n")
	}
	r.Scale.slopes(page)
	fmt.Fprintf(page, "\nLoad before: %.1f.\n", r.Scale.Load)
	if hubs := r.Scale.of(true); len(hubs) > 0 {
		p := hubs[len(hubs)-1]
		fmt.Fprintf(page, hubText, p.Members, r.Scale.Rate, r.Scale.Rate*(p.Members-1), p.ServerWatchesNeeded)
	}
}

const hubText = `
**Mesh or hub.** At no size is a hub faster. In a mesh each API server sends the changes of its own cluster; a hub sends those of all clusters to all
others: with %d members and %d changes a second, %d events a second. Here it shares two CPUs with everybody who receives them. All members together
have %d watches at the hub; that grows with the square of their number. Choose a hub where members cannot reach each other, or where having one API
server to guard is worth more than time, as long as it has the CPUs and the memory.
`

// slopes are how much one more of each costs: from the smallest size of a topology to one in
// which only that is larger.
func (s *Scale) slopes(page *strings.Builder) {
	type slope struct {
		of   string
		each int
		n    func(ScalePoint) int
	}
	page.WriteString("\n| topology | slope | converged | in: p99 | live heap | CPUs of the agent at rest | with changes | connections | API server: resident |\n|---|---|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, hub := range []bool{false, true} {
		points := s.of(hub)
		for _, of := range []slope{
			{"10 members", 10, func(p ScalePoint) int { return p.Members }},
			{"1,000 exports", 1000, func(p ScalePoint) int { return p.Exports }},
			{"10,000 endpoints", 10_000, func(p ScalePoint) int { return p.Endpoints }},
		} {
			for _, p := range points {
				small := points[0]
				more := of.n(p) - of.n(small)
				same := 0
				for _, other := range []bool{p.Members == small.Members, p.Exports == small.Exports, p.Endpoints == small.Endpoints} {
					if other {
						same++
					}
				}
				if more == 0 || same != 2 {
					continue
				}
				per := float64(of.each) / float64(more)
				fmt.Fprintf(page, "| %s | %s more | %+.1f s | %+.1f ms | %+.1f MiB | %+.3f | %+.3f | %+.1f | %+.1f MiB |\n", p.topology(), of.of,
					per*(p.Converged-small.Converged).Seconds(), per*milliseconds(p.In.P99-small.In.P99), per*mib(p.Live-small.Live),
					per*(p.Rest.Agent-small.Rest.Agent), per*(p.Busy.Agent-small.Busy.Agent), per*float64(p.Connections-small.Connections), per*mib(p.Server-small.Server))
			}
		}
	}
}

// of are the points of one topology, the smallest first.
func (s *Scale) of(hub bool) (points []ScalePoint) {
	for _, p := range s.Points {
		if p.Hub == hub {
			points = append(points, p)
		}
	}
	return points
}

// scaleRows are the bars of the plot.
func (s *Scale) scaleRows() (rows []row) {
	for _, p := range s.Points {
		rows = append(rows, row{
			fmt.Sprintf("%s, %d members, %d exports, %d endpoints", p.topology(), p.Members, p.Exports, p.Endpoints),
			[]bar{{"in", p.In, comityColor}, {"out", p.Out, relayColor}},
		})
	}
	return rows
}
