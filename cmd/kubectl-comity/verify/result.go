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

// show prints a table of all checks, and then the failures.
func show(out io.Writer, result Result) {
	table := command.NewTable(out, "\nFROM", "TO", "FAMILY", "TIME")
	for _, c := range result.Checks {
		time := "FAILED"
		if c.Passed {
			time = fmt.Sprintf("%.1f ms", c.Milliseconds)
		}
		table.Row(c.From, c.To, c.Family, time)
	}
	table.Flush()
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
