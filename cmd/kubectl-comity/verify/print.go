// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"io"
	"slices"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

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
