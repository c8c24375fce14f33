// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/join"
)

const joinLong = `Make the clusters of the given contexts members of one clusterset.

Everything is checked before anything is written, also from inside each cluster
whether it reaches the API servers and Pods of the others. The command may be
repeated at any time: it repairs what was deleted or has expired.

The other clusters store the first address of each API server that answers inside
them: that of --server, of an earlier join, of the kubeconfig, or, if that is a
loopback address as in kind, the one that the cluster itself reports.

A cluster that was made again with the same id is refused without --replace.`

const joinExample = `  # Make a mesh of three clusters.
  kubectl comity join a b c

  # The kubeconfig's address of a is reachable from this machine only.
  kubectl comity join a b --server a=https://10.0.0.1:6443 --ca a=ca.crt

  # Use the cluster of context hub as the exchange of all members.
  kubectl comity join --hub hub a b c

  # Print what a join would apply, without credentials, to keep it in Git.
  kubectl comity join a b --dry-run -o yaml`

// options are the flags of join and rotate.
type options struct {
	env              *command.Env
	output           command.Output
	hub              string
	values           perCluster
	how              join.Options
	skipReachability bool
	probe            Prober
}

// NewJoin is the command join. probe is agent.Probe, save in tests.
func NewJoin(env *command.Env, probe Prober) *cobra.Command {
	o := &options{env: env, probe: probe}
	cmd := &cobra.Command{
		Use:     "join CONTEXT CONTEXT...",
		Short:   "Make clusters members of one clusterset",
		Long:    joinLong,
		Example: joinExample,
	}
	o.addFlags(cmd)
	o.output.AddFlags(cmd)
	cmd.Flags().Lookup("output").Usage = "Output format of the objects that --dry-run prints, without credentials: json or yaml; annotation " + join.AnnotationCluster + " names the cluster of each"
	cmd.Flags().BoolVar(&o.how.Replace, "replace", false, "Accept clusters that were made again with the id of another one: their Peers get the new UID")
	return cmd
}

// addFlags registers what join and rotate share.
func (o *options) addFlags(cmd *cobra.Command) {
	cmd.ValidArgsFunction, cmd.Args = o.env.CompleteContexts, cobra.MinimumNArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) }
	o.values = perCluster{}
	flags := cmd.Flags()
	flags.BoolVar(&o.how.DryRun, "dry-run", false, "Run all checks and print what would be written, and write nothing")
	flags.StringVar(&o.hub, "hub", "", "Context of the hub in whose API server all members publish")
	o.values.addFlag(flags, "server", "ID=URL: the API server of a cluster as the others reach it; the hub's id is hub")
	o.values.addFlag(flags, "ca", "ID=FILE: the PEM bundle that verifies the API server of a cluster")
	o.values.addFlag(flags, "pod-cidrs", "ID=RANGE,...: the ranges of a cluster's Pods, if they cannot be read from it")
	o.values.addFlag(flags, "service-cidrs", "ID=RANGE,...: the ranges of a cluster's Services, if they cannot be read from it")
	o.values.addFlag(flags, "accept-cidrs", "ID=RANGE,...: the addresses that the others accept from a cluster instead of its Pod ranges")
	o.values.addFlag(flags, "accept-namespaces", "ID=NAME,...: the namespaces, such as team-*, whose exports the others import from a cluster")
	flags.BoolVar(&o.how.AllowOverlap, "allow-overlap", false, "Join clusters although their ranges overlap; endpoints in the overlap are not imported")
	flags.BoolVar(&o.skipReachability, "skip-reachability", false, "Do not check from inside the clusters what they reach; the first known address is stored")
	flags.DurationVar(&o.how.Expiry, "expiry", join.DefaultExpiry, "How long a new credential is valid; the agents renew it in time")
}

func (o *options) run(ctx context.Context, contexts []string) error {
	if len(contexts) < 2 && o.hub == "" {
		return errors.New("one context is given; expected at least two clusters to join, as in kubectl comity join a b")
	}
	if o.output.Structured() && !o.how.DryRun {
		return errors.New("-o prints what join would apply; expected --dry-run with it")
	}
	sites, err := o.open(ctx, contexts)
	if err != nil {
		return err
	}
	report := newReport(o.env, o.output)
	prepared, err := o.prepare(ctx, sites, report)
	if err != nil {
		return err
	}
	if o.output.Structured() {
		objects, err := prepared.Objects()
		if err != nil {
			return err
		}
		return o.output.PrintObjects(o.env.Out, objects)
	}
	if !o.skipReachability {
		if err := (reach{env: o.env, prepared: prepared, sites: sites, probe: o.probe}).run(ctx); err != nil {
			return err
		}
	}
	if err := prepared.Resolve(ctx); err != nil {
		return err
	}
	if err := report.replacements(ctx, prepared.Replaced(), sites); err != nil {
		return err
	}
	if err := prepared.Write(ctx); err != nil {
		return command.Incomplete(fmt.Errorf("%w\nRepeat the command to continue; it keeps what is done already", err))
	}
	report.summary(o.how, sites)
	return nil
}

// open finds the agents, and checks that they can be one clusterset.
func (o *options) open(ctx context.Context, contexts []string) ([]*agent.Site, error) {
	sites, err := agent.Sites(ctx, o.env, contexts)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(agent.Problems(sites), checkModes(sites, o.hub != "")); err != nil {
		return nil, err
	}
	if skew := agent.Skew(command.Version, sites); skew != "" {
		o.env.Warnf("%s", skew)
	}
	return sites, nil
}

// prepare makes every check but those from inside the clusters.
func (o *options) prepare(ctx context.Context, sites []*agent.Site, r *report) (*join.Prepared, error) {
	hub, err := openHub(ctx, o.env, o.hub)
	if err != nil {
		return nil, err
	}
	clusters := clustersOf(sites)
	if err := o.values.apply(clusters, hub); err != nil {
		return nil, err
	}
	o.how.Progress, o.how.ReadOnly = r.step, o.output.Structured()
	return join.Prepare(ctx, hub, clusters, o.how)
}

const rotateLong = `Replace the credentials by which joined clusters read each other.

Use it if a token may have leaked; the agents renew their tokens without it. Each
account is deleted and created again, and the API server refuses the old tokens after
10 s. Nothing is withdrawn meanwhile.`

// NewRotate is the command rotate. probe is agent.Probe, save in tests.
func NewRotate(env *command.Env, probe Prober) *cobra.Command {
	o := &options{env: env, probe: probe, how: join.Options{Rotate: true}}
	cmd := &cobra.Command{
		Use:     "rotate CONTEXT CONTEXT...",
		Short:   "Replace the credentials of joined clusters and invalidate the old ones",
		Long:    rotateLong,
		Example: "  kubectl comity rotate a b\n  kubectl comity rotate --hub hub a b c",
	}
	o.addFlags(cmd)
	return cmd
}
