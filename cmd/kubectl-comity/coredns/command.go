// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

const enableLong = `Let CoreDNS serve clusterset.local.

The command adds the zone to the plugin kubernetes of the Corefile, allows CoreDNS's
account to read ServiceImports (ClusterRole comity-coredns), and restarts CoreDNS.
Nothing is changed in any of the clusters if CoreDNS is older than 1.12.2 in one of
them, or is managed by a cloud provider or another tool; the command says what to do.

Run disable before kubeadm upgrade, which fails otherwise, and enable after it.`

// New gives the commands coredns enable and coredns disable.
func New(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "coredns",
		Short: "Let CoreDNS serve clusterset.local, or revert that",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newChange(env, true, "enable", "Let CoreDNS serve clusterset.local", enableLong),
		newChange(env, false, "disable", "Revert the changes of coredns enable",
			"Revert the changes of coredns enable. Names under clusterset.local no longer resolve."),
	)
	return cmd
}

// options are the flags.
type options struct {
	command.Output
	enable  bool
	dryRun  bool
	timeout time.Duration
	// version is CoreDNS's where its image does not say.
	version string
}

func newChange(env *command.Env, enable bool, verb, short, long string) *cobra.Command {
	o := options{enable: enable}
	cmd := env.Command(verb+" [CONTEXT...]", short, long,
		"  kubectl comity coredns "+verb+" a b --dry-run\n  kubectl comity coredns "+verb+" a b", o.run)
	o.AddFlags(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&o.dryRun, "dry-run", false, "Print what would change, and change nothing")
	flags.DurationVar(&o.timeout, "timeout", 4*time.Minute, "How long to wait until every replica of CoreDNS has restarted")
	if enable {
		flags.StringVar(&o.version, "coredns-version", "", "The version of CoreDNS, if the tag of its image does not contain it")
	}
	return cmd
}

// run plans the change of each cluster, then makes all, then awaits all.
func (o *options) run(ctx context.Context, env *command.Env, args []string) error {
	targets, err := env.OpenAll(ctx, args)
	if err != nil {
		return err
	}
	var all struct {
		Clusters []*plan `json:"clusters"`
	}
	var refused error
	for _, target := range targets {
		p, err := o.plan(ctx, target)
		refused = errors.Join(refused, err)
		all.Clusters = append(all.Clusters, p)
	}
	if refused != nil {
		return refused
	}
	if !o.Structured() {
		for _, p := range all.Clusters {
			p.print(env)
		}
	}
	if !o.dryRun {
		failed := make([]error, len(all.Clusters)) // side by side, since most of the time is spent waiting
		command.InParallel(all.Clusters, func(i int, p *plan) { failed[i] = o.execute(ctx, env, p) })
		if err := command.Incomplete(errors.Join(failed...)); err != nil {
			return err
		}
	}
	return o.Print(env.Out, "CoreDNSChange", all, func() {})
}
