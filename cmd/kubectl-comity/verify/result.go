// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"io"
	"slices"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

// Stage is how far a Service came on its way from one cluster to another.
type Stage string

// The stages, in order.
const (
	// StageCreate: the Pod and the Service run in the exporting cluster.
	StageCreate Stage = "Create"
	// StageAdmit: the policies of the exporting cluster let it be exported.
	StageAdmit Stage = "Admit"
	// StageImport: the other cluster imports it.
	StageImport Stage = "Import"
	// StageResolve: its clusterset name resolves there.
	StageResolve Stage = "Resolve"
	// StageConnect: a connection to it comes about there.
	StageConnect Stage = "Connect"
	// StageAnswer: the Pod of the exporting cluster answers.
	StageAnswer Stage = "Answer"
)

// Result is what -o prints, under kind Verification.
type Result struct {
	Passed    bool     `json:"passed"`
	Namespace string   `json:"namespace"`
	Clusters  []string `json:"clusters"`
	Checks    []Check  `json:"checks"`
	// LeftBehind names what could not be removed.
	LeftBehind []string `json:"leftBehind,omitempty"`
}

// Check is one way: cluster To fetches the Service that cluster From exports.
type Check struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Family is IPv4 or IPv6; empty if it failed before an address was used.
	Family string `json:"family,omitempty"`
	Passed bool   `json:"passed"`
	// Milliseconds is the median time of a request, name resolution included.
	Milliseconds float64 `json:"milliseconds,omitempty"`
	// Address is what the name resolved to.
	Address string `json:"address,omitempty"`
	// Stage is the one that failed.
	Stage   Stage  `json:"stage,omitempty"`
	Message string `json:"message,omitempty"`
	// Remedy is what to do about it.
	Remedy string `json:"remedy,omitempty"`
}

func passed(checks []Check) bool {
	return len(checks) > 0 && !slices.ContainsFunc(checks, func(c Check) bool { return !c.Passed })
}

// families are the headings of the tables; a check without a family belongs to all.
var families = []string{"IPv4", "IPv6"}

// show prints a table for each IP family that was used, and then the failures.
func show(out io.Writer, result Result) {
	used := slices.DeleteFunc(slices.Clone(families), func(family string) bool {
		return !slices.ContainsFunc(result.Checks, func(c Check) bool { return c.Family == family })
	})
	if len(used) == 0 {
		used = []string{""}
	}
	for _, family := range used {
		printTable(out, result, family)
	}
	for _, c := range result.Checks {
		if c.Passed {
			continue
		}
		way := fmt.Sprintf("%s fetching from %s", c.To, c.From)
		if c.Family != "" {
			way += " over " + c.Family
		}
		_, _ = fmt.Fprintf(out, "\nFAILED: %s, at stage %s: %s\n", way, c.Stage, c.Message)
		if c.Remedy != "" {
			_, _ = fmt.Fprintf(out, "  %s\n", c.Remedy)
		}
	}
	for _, left := range result.LeftBehind {
		_, _ = fmt.Fprintf(out, "\nLEFT BEHIND: %s\n", left)
	}
	if result.Passed {
		_, _ = fmt.Fprintln(out, "\nEvery cluster reaches every Service. Nothing was left behind.")
	}
}

func printTable(out io.Writer, result Result, family string) {
	heading := "FROM \\ TO"
	if family != "" {
		heading = family + ", " + heading
	}
	headings := []any{"\n" + heading}
	for _, cluster := range result.Clusters {
		headings = append(headings, cluster)
	}
	table := command.NewTable(out, headings...)
	for _, from := range result.Clusters {
		cells := []any{from}
		for _, to := range result.Clusters {
			cells = append(cells, cell(result.Checks, from, to, family))
		}
		table.Row(cells...)
	}
	table.Flush()
}

func cell(checks []Check, from, to, family string) string {
	for _, c := range checks {
		if c.From != from || c.To != to || c.Family != "" && c.Family != family {
			continue
		}
		if !c.Passed {
			return "FAILED"
		}
		return fmt.Sprintf("%.1f ms", c.Milliseconds)
	}
	return ""
}
