// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/join"
)

const joinLong = `Make the clusters of the given contexts members of one clusterset.

The ids of the clusters, their clusterset and their mode are those of the agents
that are installed there. In a mesh each cluster reads every other one; with --hub
all of them publish in the hub's API server.

Everything is checked before anything is written: the CustomResourceDefinitions,
the agents, the rights of the given access, Pod and Service ranges that overlap,
and from inside each cluster whether it reaches the API servers and Pods of the
others. The command may be repeated at any time. It repairs what was deleted or
has expired, and changes nothing else.

The other clusters store an address of each API server. The command tries, in this
order: the one of --server, the one that an earlier join stored, the one in the
kubeconfig, and, if that is a loopback address as in kind, the one that the cluster
itself reports. It uses the first one that answers inside the other cluster.

Each cluster gets a Peer for each other one, with the UID of that cluster. A cluster
that was made again with the same id has another UID, and is refused. With --replace
the command shows what is imported from the cluster before, and accepts the new one.`

const joinExample = `  # Make a mesh of three clusters.
  kubectl comity join a b c

  # The kubeconfig's address of a is reachable from this machine only.
  kubectl comity join a b --server a=https://10.0.0.1:6443 --ca a=ca.crt

  # Use the cluster of context hub as the exchange of all members.
  kubectl comity join --hub hub a b c

  # Cluster b was made again with the same id.
  kubectl comity join a b --replace

  # Print what a join would apply, without credentials, to keep it in Git.
  kubectl comity join a b -o yaml`

// options are the flags of join and rotate.
type options struct {
	env              *command.Env
	output           command.Output
	hub              string
	values           perCluster
	dryRun           bool
	allowOverlap     bool
	skipReachability bool
	rotate           bool
	replace          bool
	expiry           time.Duration
	probe            Prober
	now              func() time.Time
}

// NewJoin is the command join. probe is InPod, save in tests.
func NewJoin(env *command.Env, probe Prober) *cobra.Command {
	o := &options{env: env, probe: probe, now: time.Now}
	cmd := &cobra.Command{
		Use:               "join CONTEXT CONTEXT...",
		Short:             "Make clusters members of one clusterset",
		Long:              joinLong,
		Example:           joinExample,
		ValidArgsFunction: env.CompleteContexts(0),
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	o.output.AddFlags(cmd)
	cmd.Flags().Lookup("output").Usage = "Print the objects that join would apply, as json or yaml and without credentials, and write nothing; annotation " + clusterAnnotation + " names the cluster of each"
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "Run all checks and print what would be written, and write nothing")
	cmd.Flags().BoolVar(&o.replace, "replace", false, "Accept clusters that were made again with the id of another one: their Peers get the new UID")
	o.addFlags(cmd)
	return cmd
}

// addFlags registers what join and rotate share.
func (o *options) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.hub, "hub", "", "Context of the hub in whose API server all members publish")
	flags.StringArrayVar(&o.values.servers, "server", nil, "ID=URL: the API server of a cluster as the others reach it (repeatable; the hub's id is hub)")
	flags.StringArrayVar(&o.values.cas, "ca", nil, "ID=FILE: the PEM bundle that verifies the API server of a cluster (repeatable)")
	flags.StringArrayVar(&o.values.podCIDRs, "pod-cidrs", nil, "ID=RANGE,...: the ranges of a cluster's Pods, if they cannot be read from it (repeatable)")
	flags.StringArrayVar(&o.values.serviceCIDRs, "service-cidrs", nil, "ID=RANGE,...: the ranges of a cluster's Services, if they cannot be read from it (repeatable)")
	flags.StringArrayVar(&o.values.accepted, "accept-cidrs", nil, "ID=RANGE,...: the addresses that the others accept from a cluster instead of its Pod ranges (repeatable)")
	flags.StringArrayVar(&o.values.namespaces, "accept-namespaces", nil, "ID=NAME,...: the namespaces whose exports the others import from a cluster, names and patterns such as team-*; all if never set (repeatable)")
	flags.StringArrayVar(&o.values.ids, "id", nil, "CONTEXT=ID: refuse to continue unless the agent in this context has this id (repeatable)")
	flags.BoolVar(&o.allowOverlap, "allow-overlap", false, "Join clusters although their ranges overlap; endpoints in the overlap are not imported")
	flags.BoolVar(&o.skipReachability, "skip-reachability", false, "Do not check from inside the clusters what they reach, for API servers that do not allow exec; the first known address is stored")
	flags.DurationVar(&o.expiry, "expiry", join.DefaultExpiry, "How long a new credential is valid; the agents renew it in time")
}

func (o *options) run(ctx context.Context, contexts []string) error {
	if err := o.output.Validate(); err != nil {
		return err
	}
	if len(contexts) < 2 && (o.hub == "" || len(contexts) == 0) {
		return command.Refusedf("%d contexts are given; expected at least two clusters to join, as in kubectl comity join a b", len(contexts))
	}
	prepared, sites, report, err := o.prepare(ctx, contexts)
	if err != nil {
		return err
	}
	if o.output.Structured() {
		return o.printObjects(prepared)
	}
	if err := o.route(ctx, prepared, sites); err != nil {
		return err
	}
	if err := report.replacements(ctx, prepared.Replaced(), sites); err != nil {
		return command.Refused(err)
	}
	if err := prepared.Write(ctx); err != nil {
		return command.Incompletef("%w\nRepeat the command to continue; it keeps what is done already", err)
	}
	report.summary(o, sites)
	return nil
}

// prepare makes every check but those from inside the clusters.
func (o *options) prepare(ctx context.Context, contexts []string) (*join.Prepared, []site, *report, error) {
	all := contexts
	if o.hub != "" {
		all = append(slices.Clone(contexts), o.hub)
	}
	if _, err := o.env.ContextNames(all); err != nil && o.hub != "" && !slices.Contains(contexts, o.hub) {
		return nil, nil, nil, err
	}
	sites, err := openSites(ctx, o.env, contexts)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := checkSites(sites, o.hub != ""); err != nil {
		return nil, nil, nil, err
	}
	if err := o.values.checkIDs(sites); err != nil {
		return nil, nil, nil, err
	}
	warnOf(o.env, sites, o.now())
	var clusters []join.Cluster
	for _, s := range sites {
		clusters = append(clusters, s.cluster())
	}
	var hub *join.Hub
	if o.hub != "" {
		at, err := o.env.Open(ctx, o.hub)
		if err != nil {
			return nil, nil, nil, err
		}
		hub = &join.Hub{RESTConfig: at.REST}
	}
	if err := o.values.apply(sites, clusters, hub); err != nil {
		return nil, nil, nil, err
	}
	r := &report{env: o.env, quiet: o.output.Structured(), start: o.now(), now: o.now}
	how := join.Options{
		Expiry: o.expiry, Rotate: o.rotate, Replace: o.replace, DryRun: o.dryRun, ReadOnly: o.output.Structured(),
		AllowOverlap: o.allowOverlap, Progress: r.step, Now: o.now,
	}
	var prepared *join.Prepared
	if hub != nil {
		prepared, err = join.PrepareHub(ctx, *hub, clusters, how)
	} else {
		prepared, err = join.PrepareMesh(ctx, clusters, how)
	}
	return prepared, sites, r, command.Refused(err)
}

// route finds the address for every connection.
func (o *options) route(ctx context.Context, prepared *join.Prepared, sites []site) error {
	if !o.skipReachability {
		return reach{env: o.env, prepared: prepared, sites: sites, probe: o.probe}.run(ctx)
	}
	for _, route := range prepared.Routes() {
		candidates, err := prepared.Candidates(ctx, route)
		if err != nil {
			return command.Refused(err)
		}
		prepared.Use(route, candidates[0])
	}
	return nil
}
