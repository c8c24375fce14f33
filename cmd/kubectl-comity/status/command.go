// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"

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
	reader := Reader{Namespace: o.namespace}
	report, _ := reader.Read(ctx, sites)
	again := func(pause time.Duration) Report {
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		agent.Read(ctx, env, sites)
		report, _ := reader.Read(ctx, sites)
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
	return o.Print(env.Out, "ClusterSetStatus", &report, func() { printer{out: env.Out, now: time.Now()}.print(report) })
}

// clearScreen moves a terminal's cursor to the top and erases what is below.
const clearScreen = "\033[H\033[2J"
