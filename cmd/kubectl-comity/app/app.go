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
		child.Command(), // by which policy check and its like compile a policy
	)
	return root
}

func newVersion(env *command.Env) *cobra.Command {
	return command.New("version", "Print the version of this plugin",
		`Print the version of this plugin. kubectl comity status shows those of the agents, and
whether they differ by more than one minor version.`, "  kubectl comity version", cobra.NoArgs,
		func(context.Context, []string) error {
			env.Printf("Plugin: %s\n", command.Version)
			return nil
		})
}
