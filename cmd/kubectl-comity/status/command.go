// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

// interval is how often --watch and --wait refresh the status.
const interval = 2 * time.Second

const long = `Show the clusters, the connections to their peers, and every export and import
with its conditions. Problems are listed first, with what to do about them: one line
for each cause, with the number of objects that it affects.

STATE is that of the connection to a peer: Connected, Drained (kubectl comity drain),
or why it is not connected, such as Lost or NotUsed (the Peer is not accepted). docs/conditions.md explains the
conditions. Give the context of a hub as well to see what its members lost there.

With --wait, the command waits until there is no problem, or the time is over.

The exit code is 1 if there is a problem.`

// options are the flags.
type options struct {
	command.Output
	watch     bool
	wait      time.Duration
	namespace string
}

// New gives the command status.
func New(env *command.Env) *cobra.Command {
	var o options
	cmd := env.Command("status [CONTEXT...]", "Show clusters, peers, exports and imports, and their problems", long,
		"  kubectl comity status a b\n  kubectl comity status a b --watch\n"+
			"  kubectl comity status a b --wait 2m\n  kubectl comity status -n shop -o yaml", o.run)
	o.AddFlags(cmd)
	flags := cmd.Flags()
	flags.BoolVarP(&o.watch, "watch", "w", false, "Refresh the status until interrupted; if the output is not a terminal, print it again when it changes")
	flags.DurationVar(&o.wait, "wait", 0, "Wait until there is no problem, and print the status then, or when this time is over")
	cmd.MarkFlagsMutuallyExclusive("watch", "wait")
	flags.StringVarP(&o.namespace, "namespace", "n", "", "Show only the exports and imports of this namespace")
	return cmd
}

func (o *options) run(ctx context.Context, env *command.Env, contexts []string) error {
	sites, err := agent.Sites(ctx, env, contexts)
	if err != nil {
		return err
	}
	report, _ := Read(ctx, sites, o.namespace, time.Now())
	again := func(pause time.Duration) Report {
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		agent.Read(ctx, env, sites)
		report, _ := Read(ctx, sites, o.namespace, time.Now())
		return report
	}
	for end := time.Now().Add(o.wait); !report.Healthy && time.Now().Before(end) && ctx.Err() == nil; {
		report = again(min(interval, time.Until(end)))
	}
	err = o.show(env, report)
	for o.watch && err == nil {
		next := again(interval)
		if ctx.Err() != nil {
			break // What was cut short is no change.
		}
		if !o.Structured() && env.IsTerminal(env.Raw) {
			_, _ = env.Raw.Write([]byte(clearScreen))
		} else if equality.Semantic.DeepEqual(report, next) {
			continue
		}
		err = o.show(env, next)
		report = next
	}
	if err == nil && !report.Healthy {
		err = command.Printed(command.ExitProblem)
	}
	return err
}

func (o options) show(env *command.Env, report Report) error {
	return o.Print(env.Out, "ClusterSetStatus", &report, func() { report.print(env.Out, time.Now()) })
}

// clearScreen moves a terminal's cursor to the top and erases what is below.
const clearScreen = "\033[H\033[2J"

// print shows the report to a person.
func (r Report) print(out io.Writer, now time.Time) {
	line := func(text string) { _, _ = fmt.Fprintln(out, text) }
	age := func(since *metav1.Time) string {
		if since == nil {
			return ""
		}
		return duration.HumanDuration(now.Sub(since.Time))
	}
	ends := func(at *metav1.Time) string {
		switch {
		case at == nil:
			return ""
		case at.After(now):
			return "ends in " + duration.HumanDuration(at.Sub(now))
		}
		return "expired"
	}
	if r.Healthy {
		line("Everything is healthy.\n")
	} else {
		line("Problems:")
		for _, problem := range r.Problems {
			line("  " + problem.String())
			if problem.Fix != "" {
				line("    fix: " + problem.Fix)
			}
		}
		line("")
	}

	clusters := command.NewTable(out, "CONTEXT", "CLUSTER", "CLUSTERSET", "COMITY", "EXCHANGE", "AGENT", "SINCE", "CERTIFICATE")
	peers := 0
	for _, c := range r.Clusters {
		certificate := ptr.Deref(c.Certificate, Certificate{})
		clusters.Row(c.Context, c.ID, c.ClusterSet, c.Version, c.Exchange, c.State, age(c.Since), ends(certificate.Expires))
		peers += len(c.Peers)
	}
	clusters.Flush()

	if peers == 0 {
		line("\nNo peers. Join clusters with kubectl comity join.")
	} else {
		table := command.NewTable(out, "\nCLUSTER", "PEER", "STATE", "SINCE", "TOKEN")
		for _, c := range r.Clusters {
			for _, peer := range c.Peers {
				table.Row(c.Name(), peer.ID, peer.State, age(peer.Since), ends(peer.TokenExpires))
			}
		}
		table.Flush()
	}

	if len(r.Services) == 0 {
		line("\nNo exports and no imports.")
		return
	}
	table := command.NewTable(out, "\nNAMESPACE", "NAME", "KIND", "CLUSTER", "VALID", "READY", "CONFLICT", "ADMITTED", "AVAILABLE")
	for _, s := range r.Services {
		cells := []any{s.Namespace, s.Name, s.Kind, cmp.Or(s.Cluster, s.Context)}
		for _, column := range columns {
			cells = append(cells, cell(meta.FindStatusCondition(s.Conditions, column)))
		}
		table.Row(cells...)
	}
	table.Flush()
}

// columns are the conditions that the table has a column for, in its order.
var columns = []string{"Valid", "Ready", "Conflict", "Admitted", "Available"}

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
