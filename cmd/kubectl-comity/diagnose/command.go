// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
)

const long = `Check what one export does not show: address ranges, definitions, the agent with its
webhook, rights and tokens, DNS, zones, NetworkPolicies, names that others took, other
implementations of the MCS API, versions and clocks.

Findings are listed with the worst first, and in the order in which to fix them. Each
has the command that fixes it, or names the object and who owns it.

With --pre, check what the installation needs, before anything is installed.

The exit code is 1 if there is an error, or if something could not be read.`

// openTimeout bounds how long all clusters are opened, and their agents found.
const openTimeout = 20 * time.Second

// options are the flags.
type options struct {
	command.Output
	pre bool
}

// New gives the command diagnose.
func New(env *command.Env) *cobra.Command {
	var o options
	cmd := env.Command("diagnose [CONTEXT...]", "Check clusters and what lies between them, and say how to fix what is wrong", long,
		"  kubectl comity diagnose a b\n  kubectl comity diagnose a b --pre\n  kubectl comity diagnose a b -o json", o.run)
	o.AddFlags(cmd)
	cmd.Flags().BoolVar(&o.pre, "pre", false, "Check what the installation needs, before Comity is installed")
	return cmd
}

func (o *options) run(ctx context.Context, env *command.Env, contexts []string) error {
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	sites, err := agent.Sites(opening, env, contexts)
	if err != nil {
		return err
	}
	report := Sites(ctx, sites, o.pre)
	return o.Conclude(env.Out, "Diagnosis", &report, report.Healthy, func() { report.print(env) })
}

// Report is what -o prints, under kind Diagnosis.
type Report struct {
	// Healthy is true if there is no error, and everything was read.
	Healthy  bool              `json:"healthy"`
	Findings []finding.Finding `json:"findings"`
}

// severities are in the order of the output.
var severities = []finding.Severity{finding.Error, finding.Warning, finding.NotRead, finding.OK}

// newReport sorts findings by severity and leaves them in their order otherwise.
func newReport(all []finding.Finding) Report {
	slices.SortStableFunc(all, func(a, b finding.Finding) int {
		return slices.Index(severities, a.Severity) - slices.Index(severities, b.Severity)
	})
	healthy := !slices.ContainsFunc(all, func(f finding.Finding) bool { return f.Severity == finding.Error || f.Severity == finding.NotRead })
	return Report{Healthy: healthy, Findings: all}
}

// print shows one line for each check that passed, and each fault with its fix.
func (r Report) print(env *command.Env) {
	passed, shown := map[string][]string{}, map[finding.Severity]bool{}
	for _, f := range r.Findings {
		if f.Severity == finding.OK {
			passed[f.Check] = append(passed[f.Check], f.Cluster)
		}
	}
	for _, f := range r.Findings {
		if !shown[f.Severity] {
			env.Printf("%s:\n", f.Severity)
			shown[f.Severity] = true
		}
		if f.Severity != finding.OK {
			env.Printf("  %s\n      fix: %s\n      see: %s\n", line(f), f.Fix, f.Docs)
		} else if clusters := passed[f.Check]; clusters[0] == f.Cluster {
			env.Printf("  %s: %s\n", f.Check, strings.Join(clusters, ", "))
		}
	}
}

// line is a finding without its fix.
func line(f finding.Finding) string {
	text := f.Cluster + ": " + f.Check
	if f.Object != "" {
		text += ": " + f.Object
	}
	if f.Reason != "" {
		text += " (" + f.Reason + ")"
	}
	text += ": " + strings.TrimPrefix(f.Message, fmt.Sprintf("context %q: ", f.Cluster))
	if f.Since != nil {
		text += ", since " + f.Since.UTC().Format(time.RFC3339)
	}
	return text
}
