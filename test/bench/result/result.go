// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package result holds what the benchmark found and shows it.
//
// It takes measurements, each with the load that the machine had before it; it
// gives a table, a plot, and a file from which the next run takes what it does
// not measure itself. It measures nothing.
package result

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Results are the newest of each part.
type Results struct {
	// Machines are where the parts were measured, by their names.
	Machines    map[string]Machine
	Propagation []Propagation `json:",omitempty"`
	Memory      *Memory       `json:",omitempty"`
	Change      *Change       `json:",omitempty"`
	Restart     *Restart      `json:",omitempty"`
	Hostile     *Hostile      `json:",omitempty"`
	Admission   *Admission    `json:",omitempty"`
	Scale       *Scale        `json:",omitempty"`
}

// Propagation is the time from a change of an endpoint in one cluster until it
// is written elsewhere.
type Propagation struct {
	Clusters, Exports, Changes int
	// Remote is until the last other cluster has it, Local until the import of
	// the cluster itself has it.
	Remote Comparison
	Local  Comparison `json:",omitzero"`
	// Writes of all agents for one change.
	Writes float64
	// Load is the machine's one-minute average before.
	Load float64
}

// Comparison is the same way through Comity and through two relays: one that makes
// only the writes of this way, and one that makes those of both ways at the same
// time, as Comity does.
type Comparison struct {
	Comity, Relay Quantiles
	Full          Quantiles `json:",omitzero"`
}

// Quantiles are some of many times.
type Quantiles struct{ P50, P90, P99, Max time.Duration }

// Memory is what the importing agent holds with more and more slices.
type Memory struct {
	Endpoints int // of each slice
	Points    []MemoryPoint
	Load      float64
}

// MemoryPoint is what it holds with so many slices, in bytes.
type MemoryPoint struct{ Slices, Live, Resident int }

// Change is what the agents wrote when one endpoint of a large service changed,
// by cluster, verb and resource.
type Change struct {
	Clusters, Endpoints, Slices, Changes int
	Writes                               map[string]int
}

// Restart is how starts went with many imports.
type Restart struct {
	Imports int
	// Cold is from the start of an agent in a cluster without any import until
	// it has all.
	Cold time.Duration
	// ColdAll is until the last of its writes was answered.
	ColdAll time.Duration `json:",omitzero"`
	// Bare is how long a client takes that only makes these writes again.
	Bare Bare `json:",omitzero"`
	// ColdWrites is how much it wrote for that, conditions and reports included.
	ColdWrites int
	Restarts   []Converged
	// Live and Resident are what the importing agent holds in the end.
	Live, Resident int
	Load           float64
}

// Bare is a client that makes the writes of an agent again, those of one import one after
// the other, and of so many imports at once.
type Bare struct {
	Writes, AtOnce int
	Took           time.Duration
}

// Converged is the start of an agent where everything is as it should be.
type Converged struct {
	// Exporting is true for the cluster that exports, false for the other.
	Exporting bool
	Took      time.Duration
	Writes    int
}

// Hostile is how one member fares beside another one that does what it can to the
// others.
type Hostile struct {
	// For is how long each phase took, each of so many times.
	For    time.Duration
	Rounds int
	Phases []HostilePhase
	Load   float64
}

// HostilePhase is one load.
type HostilePhase struct {
	Name string
	// Took is the time of the other member's changes, of which there were so many.
	Took    Quantiles
	Changes int
	// Attacks are the writes of the loading member at full speed, Writes those of the
	// importing agent, and Peak is its highest resident memory in bytes.
	Attacks, Writes, Peak int
}

func (p HostilePhase) String() string {
	return fmt.Sprintf("p50 %.1f ms, p99 %.1f ms of %d changes; %d writes at full speed, %d by the importing agent, which held at most %.0f MiB",
		milliseconds(p.Took.P50), milliseconds(p.Took.P99), p.Changes, p.Attacks, p.Writes, mib(p.Peak))
}

// Admission is how long the webhook takes for a request to create a ServiceExport, and
// what it allocates.
type Admission struct {
	// Requests are how many were made of each engine and size, one after the other.
	Requests int
	Engines  []AdmissionEngine
	Audit    AdmissionAudit
	Load     float64
}

// AdmissionEngine is one engine with so many clusters and namespaces in each.
type AdmissionEngine struct {
	Name                 string
	Clusters, Namespaces int
	Took                 Quantiles
	// Allocations and Bytes of one request.
	Allocations, Bytes float64
}

// AdmissionAudit is how long requests take, from when they come, while all stored
// exports are evaluated again.
type AdmissionAudit struct {
	Clusters, Namespaces, Exports int
	Rate                          int // requests a second
	For                           time.Duration
	Took                          Quantiles
	// Evaluations of stored exports meanwhile.
	Evaluations int
}

// Distribution gives the quantiles of times.
func Distribution(all []time.Duration) Quantiles {
	return Quantiles{P50: quantile(all, 0.5), P90: quantile(all, 0.9), P99: quantile(all, 0.99), Max: quantile(all, 1)}
}

// quantile is the smallest value that at least this part of all is not above.
func quantile(all []time.Duration, part float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	at := int(part*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(at, 0), len(sorted)-1)]
}

// At notes where a part was measured.
func (r *Results) At(part string, m Machine) {
	if r.Machines == nil {
		r.Machines = map[string]Machine{}
	}
	r.Machines[part] = m
}

// AddPropagation takes the place of what was measured under the same conditions.
func (r *Results) AddPropagation(p Propagation) {
	r.Propagation = slices.DeleteFunc(r.Propagation, func(old Propagation) bool {
		return old.Clusters == p.Clusters && old.Exports == p.Exports
	})
	r.Propagation = append(r.Propagation, p)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (p Propagation) String() string {
	return fmt.Sprintf("remote: %s; local: %s", p.Remote, p.Local)
}

func (c Comparison) String() string {
	return fmt.Sprintf("p50 %.1f ms (relay %.1f, ×%.2f; full relay ×%.2f), p99 %.1f ms (relay %.1f, ×%.2f; full relay ×%.2f)",
		milliseconds(c.Comity.P50), milliseconds(c.Relay.P50), ratio(c.Comity.P50, c.Relay.P50), ratio(c.Comity.P50, c.Full.P50),
		milliseconds(c.Comity.P99), milliseconds(c.Relay.P99), ratio(c.Comity.P99, c.Relay.P99), ratio(c.Comity.P99, c.Full.P99))
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

// PerSlice is what one more slice costs, by the first and the last point that
// hold any, so that what the first one costs is left out.
func (m *Memory) PerSlice() (live, resident float64) {
	first, last := m.Points[0], m.Points[len(m.Points)-1]
	if len(m.Points) > 2 {
		first = m.Points[1]
	}
	n := float64(last.Slices - first.Slices)
	return float64(last.Live-first.Live) / n, float64(last.Resident-first.Resident) / n
}

// fileName is without its ending.
const fileName = "benchmarks"

// Load reads what an earlier run left in a directory; nothing if there is none.
func Load(dir string) (*Results, error) {
	r := &Results{}
	text, err := os.ReadFile(filepath.Join(dir, fileName+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	return r, json.Unmarshal(text, r)
}

// Save writes the results, the page and the plots.
func (r *Results) Save(dir string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	files := map[string]string{".json": string(text) + "\n"}
	page := "# Benchmarks\n\nMade by `make bench ARGS=\"--write docs\"`; do not edit.\n\n" + r.Markdown()
	if len(r.Propagation) > 0 {
		page += "\n![Time from a change until it is written elsewhere, Comity and relay](" + fileName + ".svg)\n"
		if files[".svg"], err = svg("From a change of an endpoint until it is written elsewhere", r.rows()); err != nil {
			return err
		}
	}
	if r.Scale != nil {
		page += "\n![Time of a change into and out of one member of a large clusterset](" + fileName + "-scale.svg)\n"
		if files["-scale.svg"], err = svg("From a change until it is written in one member, or published by it", r.Scale.scaleRows()); err != nil {
			return err
		}
	}
	files[".md"] = page
	for ending, content := range files {
		if err := os.WriteFile(filepath.Join(dir, fileName+ending), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}
