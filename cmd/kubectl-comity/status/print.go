// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
)

// printer shows a report to a person.
type printer struct {
	out io.Writer
	now time.Time
}

func (p printer) print(report Report) {
	if report.Healthy {
		p.line("Everything is healthy.\n")
	} else {
		p.line("Problems:")
		for _, problem := range report.Problems {
			p.line("  " + problemLine(problem))
		}
		p.line("")
	}
	p.clusters(report.Clusters)
	p.peers(report.Clusters)
	p.services(report.Services)
}

func (p printer) line(text string) { _, _ = fmt.Fprintln(p.out, text) }

// problemLine names the context once, whoever wrote the message.
func problemLine(p finding.Finding) string {
	line := p.Object
	if p.Cluster != "" {
		line = p.Cluster + ": " + p.Object
	}
	if p.Affects > 0 {
		line += fmt.Sprintf(" (affects %d objects)", p.Affects)
	}
	return line + ": " + strings.TrimPrefix(p.Message, fmt.Sprintf("context %q: ", p.Cluster))
}

func (p printer) clusters(clusters []Cluster) {
	table := command.NewTable(p.out, "CONTEXT", "CLUSTER", "CLUSTERSET", "COMITY", "EXCHANGE", "AGENT", "SINCE", "CERTIFICATE")
	for _, c := range clusters {
		certificate := ""
		if c.Certificate != nil {
			certificate = p.ends(c.Certificate.Expires)
		}
		table.Row(c.Context, c.ID, c.ClusterSet, c.Version, c.Exchange, c.State, p.age(c.Since), certificate)
	}
	table.Flush()
}

// ends is when something expires; empty if that is not known.
func (p printer) ends(at *metav1.Time) string {
	switch {
	case at == nil:
		return ""
	case at.After(p.now):
		return "ends in " + duration.HumanDuration(at.Sub(p.now))
	}
	return "expired"
}

func (p printer) peers(clusters []Cluster) {
	if !slices.ContainsFunc(clusters, func(c Cluster) bool { return len(c.Peers) > 0 }) {
		p.line("\nNo peers. Join clusters with kubectl comity join.")
		return
	}
	table := command.NewTable(p.out, "\nCLUSTER", "PEER", "STATE", "SINCE", "TOKEN")
	for _, c := range clusters {
		for _, peer := range c.Peers {
			table.Row(c.name(), peer.ID, peer.State, p.age(peer.Since), p.ends(peer.TokenExpires))
		}
	}
	table.Flush()
}

func (p printer) services(services []Service) {
	if len(services) == 0 {
		p.line("\nNo exports and no imports.")
		return
	}
	table := command.NewTable(p.out, "\nNAMESPACE", "NAME", "KIND", "CLUSTER", "VALID", "READY", "CONFLICT", "ADMITTED", "AVAILABLE")
	for _, s := range services {
		cells := []any{s.Namespace, s.Name, s.Kind, s.name()}
		for _, column := range columns {
			cells = append(cells, cell(meta.FindStatusCondition(s.Conditions, column)))
		}
		table.Row(cells...)
	}
	table.Flush()
}

// cell is the status, and the reason where it says more than the status does.
func cell(c *metav1.Condition) string {
	switch {
	case c == nil:
		return ""
	case bad(*c) || c.Reason == "Pending":
		return string(c.Status) + " (" + c.Reason + ")"
	}
	return string(c.Status)
}

func (c Cluster) name() string { return cmp.Or(c.ID, c.Context) }

func (s Service) name() string { return cmp.Or(s.Cluster, s.Context) }

func (p printer) age(since *metav1.Time) string {
	if since == nil {
		return ""
	}
	return duration.HumanDuration(p.now.Sub(since.Time))
}
