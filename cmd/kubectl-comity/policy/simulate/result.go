// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/policy/violation"
	"github.com/comity-mcs/comity/policies/preview"
)

// Result is what the command prints.
type Result struct {
	// Changes is true if anything but warnings would change.
	Changes  bool      `json:"changes"`
	Clusters []Cluster `json:"clusters"`
}

// Cluster is what would happen in one cluster.
type Cluster struct {
	Context string `json:"context"`
	ID      string `json:"id"`
	// Policies are those that would be in use, sorted.
	Policies []string `json:"policies"`
	// Exports is how many there are, Unread how many of them could not be read, and
	// Problem why of the first. Imports is how many there are, one for each source cluster.
	Exports int    `json:"exports"`
	Imports int    `json:"imports"`
	Unread  int    `json:"unread,omitempty"`
	Problem string `json:"problem,omitempty"`
	// Effects are those on exports, then those on imports, by namespace and name.
	Effects []Effect `json:"effects"`
	// Unknown is what was not known, one sentence each.
	Unknown []string `json:"unknown"`

	changes bool
}

// Effect is what would happen to one object.
type Effect struct {
	// Kind is ServiceExport or ServiceImport.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// From is the source cluster of an import.
	From string `json:"from,omitempty"`
	// Effect is one of preview.Kind.
	Effect preview.Kind `json:"effect"`
	// Grace is after how long it would be withdrawn, as 10m; empty: at once.
	Grace string `json:"grace,omitempty"`
	// Clusters are those that would lose or get it; empty: all.
	Clusters []string `json:"clusters,omitempty"`
	// Why are the violations, Problem why policies cannot be evaluated.
	Why     []violation.Violation `json:"why,omitempty"`
	Problem string                `json:"problem,omitempty"`
}

// The kinds of objects.
const (
	kindExport = "ServiceExport"
	kindImport = "ServiceImport"
)

// with adds what a preview found.
func (c Cluster) with(report preview.Report) Cluster {
	c.changes = report.Changes()
	c.Exports, c.Imports = report.Exports.Total, report.Imports.Total
	c.Unread, c.Problem = report.Exports.Unread, report.Exports.Problem
	c.add(kindExport, report.Exports.Effects)
	c.add(kindImport, report.Imports.Effects)
	return c
}

func (c *Cluster) add(kind string, effects []preview.Effect) {
	for _, effect := range effects {
		e := Effect{
			Kind: kind, Namespace: effect.Namespace, Name: effect.Name, From: effect.Cluster, Effect: effect.Kind, Clusters: effect.Clusters,
			Why: violation.Of(effect.Why), Problem: effect.Problem,
		}
		if effect.Grace > 0 {
			e.Grace = preview.Duration(effect.Grace)
		}
		c.Effects = append(c.Effects, e)
	}
}

// show prints a table of the effects, and what is not known.
func show(out io.Writer, result Result) error {
	writer := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	for i, cluster := range result.Clusters {
		if i == 0 && slices.ContainsFunc(result.Clusters, func(c Cluster) bool { return len(c.Effects) > 0 }) {
			_, _ = fmt.Fprintln(writer, "CLUSTER\tEFFECT\tKIND\tNAMESPACE\tNAME\tWHY")
		}
		for _, effect := range cluster.Effects {
			_, _ = fmt.Fprintf(writer, "%s\t%s\t%s\t%s\t%s\t%s\n", cluster.ID, effect.what(), effect.Kind, effect.Namespace, effect.Name, effect.why())
		}
	}
	if err := writer.Flush(); err != nil {
		return err
	}
	for _, cluster := range result.Clusters {
		_, _ = fmt.Fprintln(out, cluster.summary())
		for _, unknown := range cluster.Unknown {
			_, _ = fmt.Fprintf(out, "  not known: %s\n", unknown)
		}
	}
	return nil
}

// what is the effect with its time or clusters.
func (e Effect) what() string {
	switch {
	case e.Grace != "":
		return fmt.Sprintf("%s after %s", e.Effect, e.Grace)
	case e.From != "":
		return fmt.Sprintf("%s from %s", e.Effect, e.From)
	case len(e.Clusters) > 0:
		return fmt.Sprintf("%s %s", e.Effect, strings.Join(e.Clusters, ","))
	}
	return string(e.Effect)
}

// why is the first violation, or the problem, on one line; the others are in the JSON.
func (e Effect) why() string {
	if len(e.Why) == 0 {
		return oneLine(e.Problem)
	}
	text := oneLine(e.Why[0].Text)
	if more := len(e.Why) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// summary is one line on a cluster.
func (c Cluster) summary() string {
	counts := map[preview.Kind]int{}
	for _, effect := range c.Effects {
		counts[effect.Effect]++
	}
	var parts []string
	for _, kind := range preview.Kinds() {
		if counts[kind] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", kind, counts[kind]))
		}
	}
	text := "nothing would change"
	if len(parts) > 0 {
		text = strings.Join(parts, ", ")
	}
	text = fmt.Sprintf("Cluster %s (context %s), %d exports and %d imports: %s", c.ID, c.Context, c.Exports, c.Imports, text)
	if c.Unread > 0 {
		text += fmt.Sprintf("; %d could not be read: %s", c.Unread, c.Problem)
	}
	return text
}
