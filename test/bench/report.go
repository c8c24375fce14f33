// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/comity-mcs/comity/test/install"
)

// report is what a run found.
type report struct {
	options options
	ways    []*way
	// writes of the agents while changes were measured, by cluster and resource.
	writes map[string]int
	// loaded is how long the other exports took to arrive.
	loaded time.Duration
}

func (r report) print() error {
	fmt.Printf("endpoint changed in a → slice written in b, %d changes one after the other, %d other exports\n", r.options.changes, r.options.exports)
	fmt.Printf("%d CPUs, %s, %s/%s, kernel %s\n\n", runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH, kernel())
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	if _, err := table.Write([]byte(r.rows())); err != nil {
		return err
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Println("\nwrites by Comity per change, leader election left out (the relay makes 2):")
	total := 0
	for _, what := range slices.Sorted(maps.Keys(r.writes)) {
		total += r.writes[what]
		fmt.Printf("  %.2f  %s\n", r.perChange(r.writes[what]), what)
	}
	fmt.Printf("  %.2f  in all\n", r.perChange(total))
	if r.options.exports > 0 {
		fmt.Printf("\n%d other exports were in b %.1f s after the first was made in a\n", r.options.exports, r.loaded.Seconds())
	}
	return nil
}

// rows are the lines of the table, with a tab after each cell.
func (r report) rows() string {
	var text strings.Builder
	text.WriteString("\tp50\tp90\tp99\tmax\t\n")
	for _, w := range r.ways {
		text.WriteString(w.service)
		if w.service == throughRelay {
			text.WriteString(" (" + r.options.verb + ")")
		}
		for _, q := range quantiles {
			fmt.Fprintf(&text, "\t%.1f ms", milliseconds(quantile(w.took, q)))
		}
		text.WriteString("\t\n")
	}
	text.WriteString("ratio")
	for _, q := range quantiles {
		fmt.Fprintf(&text, "\t%.2f", float64(quantile(r.ways[0].took, q))/float64(quantile(r.ways[1].took, q)))
	}
	return text.String() + "\t\n"
}

func (r report) perChange(count int) float64 { return float64(count) / float64(r.options.changes) }

// quantiles of the table; the last is the greatest value.
var quantiles = []float64{0.5, 0.9, 0.99, 1}

// quantile is the smallest value that at least this part of all is not above.
func quantile(all []time.Duration, part float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	at := int(part*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(at, 0), len(sorted)-1)]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// writes counts what the agents wrote since a moment.
func (p *pair) writes(since time.Time) (map[string]int, error) {
	out := map[string]int{}
	for _, m := range []*member{p.a, p.b} {
		all, err := m.Writes(since)
		if err != nil {
			return nil, err
		}
		for _, w := range all {
			leads := w.Resource == "coordination.k8s.io/leases" || w.Resource == "events"
			if strings.HasPrefix(w.User, "system:serviceaccount:"+install.Namespace+":") && !leads {
				out[fmt.Sprintf("%s: %s %s", m.ID(), w.Verb, w.Resource)]++
			}
		}
	}
	return out, nil
}

// kernel is the version of the running kernel, as far as it can be told.
func kernel() string {
	version, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(version))
}
