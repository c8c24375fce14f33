// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package app puts the commands of `kubectl comity` together.
//
// Main takes the arguments and gives the exit code; New is the tree of commands,
// from which the reference in docs is generated. What a command does is in its
// own package. It writes to no cluster itself.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/confirm"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/coredns"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/diagnose"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/drain"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/gather"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/graph"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/join"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/networkpolicy"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/policy"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/status"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/trace"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/verify"
	"github.com/comity-mcs/comity/policies/engine/child"
	"github.com/comity-mcs/comity/sync/model"
)

// long is the text of `kubectl comity --help`.
const long = `Join Kubernetes clusters into a clusterset, and see how they work together.

Clusters are named by the contexts of your kubeconfig. A command that takes
contexts and is given none uses --context, or else the current one.

Exit codes:
  0  done, or all is healthy
  1  the command ran and found a problem
  2  wrong usage, or a check failed; nothing was written
  3  the command failed while it wrote; repeat it`

// Main runs the command that args name and gives the exit code.
func Main(args []string) int {
	// A signal ends the command in order, so that it can clean up; a second one kills it.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	return Run(ctx, streams, args)
}

// Run is Main with its surroundings given.
func Run(ctx context.Context, streams genericiooptions.IOStreams, args []string) int {
	// Errors are returned; the libraries' logs would repeat them in their own words.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	ctrl.SetLogger(klog.Background())
	env := command.NewEnv(streams)
	root := New(env)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !errors.Is(err, command.ErrPrinted) {
		_, _ = fmt.Fprintf(env.ErrOut, "Error: %v\n", err)
	}
	return int(command.CodeOf(err))
}

// New is the tree of commands.
func New(env *command.Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-comity",
		Short: "Join Kubernetes clusters into a clusterset",
		Long:  long,
		// kubectl runs kubectl-comity, so that is what users type.
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: command.Name},
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(env.Out)
	root.SetErr(env.ErrOut)
	env.AddFlags(root.PersistentFlags())
	_ = root.RegisterFlagCompletionFunc("context", env.CompleteContexts)
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(
		join.NewJoin(env, agent.Probe),
		join.NewLeave(env),
		join.NewRotate(env, agent.Probe),
		confirm.New(env),
		coredns.New(env),
		gather.New(env),
		graph.New(env),
		diagnose.New(env),
		drain.New(env),
		drain.NewResume(env),
		networkpolicy.New(env),
		policy.New(env),
		status.New(env),
		trace.New(env),
		verify.New(env),
		newVersion(env),
		newCompletion(env),
		child.Command(), // by which policy check and its like compile a policy
	)
	return root
}

// versions is what `kubectl comity version` prints.
type versions struct {
	Plugin string           `json:"plugin"`
	Agents []status.Cluster `json:"agents"`
	// Skew says which versions differ by too much.
	Skew string `json:"skew,omitempty"`
}

func newVersion(env *command.Env) *cobra.Command {
	var output command.Output
	var clientOnly bool
	cmd := env.Command("version [CONTEXT...]", "Print the versions of this plugin and of the agents",
		`Print the versions of this plugin and of the agents in the given contexts, and
whether they differ by more than one minor version.

The exit code is 1 if an agent's version cannot be read or differs by too much.`,
		"  kubectl comity version a b\n  kubectl comity version --client", 0,
		func(ctx context.Context, env *command.Env, args []string) (err error) {
			var sites []*agent.Site
			if !clientOnly {
				if sites, err = agent.Sites(ctx, env, args); err != nil {
					return err
				}
			}
			found := versions{Plugin: command.Version, Agents: model.Map(sites, status.ClusterOf), Skew: agent.Skew(sites)}
			return output.Conclude(env.Out, "Versions", &found, agent.Problems(sites) == nil && found.Skew == "", func() {
				env.Printf("Plugin: %s\n", found.Plugin)
				if clientOnly {
					return
				}
				table := command.NewTable(env.Out, "\nCONTEXT", "CLUSTER", "NAMESPACE", "COMITY")
				for _, c := range found.Agents {
					table.Row(c.Context, c.ID, c.Namespace, c.Version)
				}
				table.Flush()
				for _, s := range sites {
					if s.Err != nil {
						env.Warnf("%s", s.Err)
					}
				}
				if found.Skew != "" {
					env.Warnf("%s", found.Skew)
				}
			})
		})
	output.AddFlags(cmd)
	cmd.Flags().BoolVar(&clientOnly, "client", false, "Print the version of this plugin alone, without a request to a cluster")
	return cmd
}

const completionLong = `Print the program that kubectl runs to complete the commands, flags and contexts
of this plugin. Store it once on the PATH as kubectl_complete-comity:

  kubectl comity completion > ~/.local/bin/kubectl_complete-comity
  chmod +x ~/.local/bin/kubectl_complete-comity

Completion of kubectl itself must be set up in the shell: see
kubectl completion --help.`

// completionScript is what kubectl runs with the words that were typed after
// "kubectl comity"; the answer is in the protocol of cobra.
const completionScript = `#!/bin/sh
# Completes "kubectl comity" for kubectl.
exec kubectl-comity __complete "$@"
`

func newCompletion(env *command.Env) *cobra.Command {
	return command.New("completion", "Print the program that completes the commands of this plugin", completionLong,
		"  kubectl comity completion > ~/.local/bin/kubectl_complete-comity", cobra.NoArgs,
		func(context.Context, []string) error {
			env.Printf("%s", completionScript)
			return nil
		})
}
