// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

// printer shows a report to a person.
type printer struct {
	out io.Writer
	now time.Time
}

func (p printer) print(report Report) error {
	if err := p.clusters(report.Clusters); err != nil {
		return err
	}
	if err := p.peers(report.Clusters); err != nil {
		return err
	}
	if err := p.services(report.Services); err != nil {
		return err
	}
	if report.Healthy {
		_, err := fmt.Fprintln(p.out, "\nEverything is healthy.")
		return err
	}
	if _, err := fmt.Fprintln(p.out, "\nProblems:"); err != nil {
		return err
	}
	for _, problem := range report.Problems {
		if _, err := fmt.Fprintf(p.out, "  %s\n", problemLine(problem)); err != nil {
			return err
		}
	}
	return nil
}

// problemLine names the context once, whoever wrote the message.
func problemLine(p Problem) string {
	named := fmt.Sprintf("context %q: ", p.Context)
	if p.Context == "" {
		return p.Object + ": " + p.Message
	}
	return p.Context + ": " + p.Object + ": " + strings.TrimPrefix(p.Message, named)
}

func (p printer) clusters(clusters []Cluster) error {
	table := command.NewTable(p.out, "CONTEXT", "CLUSTER", "CLUSTERSET", "COMITY", "EXCHANGE", "AGENT", "SINCE", "CERTIFICATE")
	for _, c := range clusters {
		table.Row(c.Context, c.ID, c.ClusterSet, c.Version, c.Exchange, c.State, p.age(c.Since), p.certificate(c.Certificate))
	}
	return table.Flush()
}

func (p printer) certificate(c *Certificate) string {
	switch {
	case c == nil:
		return ""
	case c.Expires == nil:
		return "not ready"
	case c.Expires.Time.Before(p.now):
		return "expired"
	case !c.Ready:
		return "not ready, ends in " + duration.HumanDuration(c.Expires.Sub(p.now))
	}
	return "ends in " + duration.HumanDuration(c.Expires.Sub(p.now))
}

func (p printer) peers(clusters []Cluster) error {
	if !slices.ContainsFunc(clusters, func(c Cluster) bool { return len(c.Peers) > 0 }) {
		_, err := fmt.Fprintln(p.out, "\nNo peers. Join clusters with kubectl comity join.")
		return err
	}
	table := command.NewTable(p.out, "\nCLUSTER", "PEER", "STATE", "SINCE", "TOKEN")
	for _, c := range clusters {
		for _, peer := range c.Peers {
			table.Row(c.name(), peer.ID, peer.State, p.age(peer.Since), p.token(peer.TokenExpires))
		}
	}
	return table.Flush()
}

func (p printer) token(expires *metav1.Time) string {
	switch {
	case expires == nil:
		return ""
	case expires.After(p.now):
		return "ends in " + duration.HumanDuration(expires.Sub(p.now))
	}
	return "expired"
}

func (p printer) services(services []Service) error {
	if len(services) == 0 {
		_, err := fmt.Fprintln(p.out, "\nNo exports and no imports.")
		return err
	}
	headers := []any{"\nNAMESPACE", "NAME", "KIND", "CLUSTER"}
	for _, column := range columns {
		headers = append(headers, strings.ToUpper(column))
	}
	table := command.NewTable(p.out, headers...)
	for _, s := range services {
		cells := []any{s.Namespace, s.Name, s.Kind, s.name()}
		for _, column := range columns {
			cells = append(cells, cell(column, s.Conditions[column]))
		}
		table.Row(cells...)
	}
	return table.Flush()
}

// cell is the status, and the reason where it says more than the status does.
func cell(column string, c Condition) string {
	if c.Status == "" {
		return ""
	}
	if bad(metav1.Condition{Type: column, Status: c.Status, Reason: c.Reason}) || c.Reason == "Pending" {
		return string(c.Status) + " (" + c.Reason + ")"
	}
	return string(c.Status)
}

func (c Cluster) name() string {
	if c.ID == "" {
		return c.Context
	}
	return c.ID
}

func (s Service) name() string {
	if s.Cluster == "" {
		return s.Context
	}
	return s.Cluster
}

func (p printer) age(since *metav1.Time) string {
	if since == nil {
		return ""
	}
	return duration.HumanDuration(p.now.Sub(since.Time))
}
