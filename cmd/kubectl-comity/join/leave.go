// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

const leaveLong = `Take a cluster out of its clusterset.

The cluster of the first context leaves the clusters of the others. The command
shows how many imports lose an export by it, and asks. On both sides it then sets
spec.removed of the Peer, waits until the agent has removed what it imported, and
deletes the Peer and the Secret with the credential, the account with all its
tokens, and the exchange namespace between the two. With the last peer of a cluster,
the command also deletes the exchange namespace that all peers read. Without
REMAINING, it removes all peers from the leaving cluster, and prints what to run in
each of them.

If an agent does not run, its Peer stays with spec.removed, and the agent removes
what it imported when it runs again. Repeat the command then.

If the leaving cluster is lost, specify its id with --id; all contexts are then
those of remaining clusters. This works without a Peer, too.

With --purge, everything that Comity created in the leaving cluster is removed: its
imports with their Services and EndpointSlices, its conditions, the exchange
namespaces, credentials, accounts and roles. The agent is scaled to 0 replicas
first, because it would create its imports again; until it is uninstalled or scaled
up, new ServiceExports are refused, because no webhook answers. Objects that Comity
did not create, ServiceExports and the CustomResourceDefinitions stay.`

const leaveExample = `  # Cluster c leaves a and b.
  kubectl comity leave c a b

  # Cluster b does not exist any more.
  kubectl comity leave --id b a

  # Remove all that Comity created in cluster a, before it is uninstalled.
  kubectl comity leave a --purge`

// leaving are the flags of leave, and what it learns.
type leaving struct {
	env    *command.Env
	output command.Output
	id     string
	hub    string
	purge  bool
	dryRun bool
	wait   bool
	ask    command.Confirmation
	now    func() time.Time

	report *report
	// leaver is the cluster that leaves; without RESTConfig if it is lost.
	leaver join.Cluster
	mode   model.ExchangeMode
	target *command.Target
	// remaining are reachable; lost are the contexts that are not, and why.
	remaining []site
	lost      map[string]error
	atHub     *command.Target
}

// NewLeave is the command leave.
func NewLeave(env *command.Env) *cobra.Command {
	l := &leaving{env: env, now: time.Now, lost: map[string]error{}}
	cmd := &cobra.Command{
		Use:               "leave LEAVING [REMAINING...]",
		Short:             "Take a cluster out of its clusterset, or remove all that Comity created there",
		Long:              leaveLong,
		Example:           leaveExample,
		ValidArgsFunction: env.CompleteContexts(0),
		RunE:              func(cmd *cobra.Command, args []string) error { return l.run(cmd.Context(), args) },
	}
	l.output.AddFlags(cmd)
	l.ask.AddFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&l.id, "id", "", "The id of a leaving cluster that is lost; all contexts are those of remaining clusters")
	flags.StringVar(&l.hub, "hub", "", "Context of the hub in whose API server all members publish")
	flags.BoolVar(&l.purge, "purge", false, "Remove everything that Comity created in the leaving cluster, including imports")
	flags.BoolVar(&l.dryRun, "dry-run", false, "Print what would be removed, and remove nothing")
	flags.BoolVar(&l.wait, "wait", true, "Wait until the removed namespaces are gone, for at most two minutes")
	return cmd
}

func (l *leaving) run(ctx context.Context, contexts []string) error {
	if err := l.check(contexts); err != nil {
		return err
	}
	l.report = &report{env: l.env, quiet: l.output.Structured(), start: l.now(), now: l.now}
	if err := l.open(ctx, contexts); err != nil {
		return err
	}
	peers, err := l.peers(ctx)
	if err != nil {
		return command.Refused(err)
	}
	if l.mode == model.ExchangeHub && l.hub == "" && len(peers) > 0 {
		return command.Refusedf("cluster %s publishes in a hub and has the peers %s; name the hub's context with --hub", l.leaver.ID, joinIDs(peers))
	}
	how := join.Options{DryRun: l.dryRun, Progress: l.report.step, Now: l.now}
	clusters := []join.Cluster{l.leaver}
	for _, s := range l.remaining {
		clusters = append(clusters, s.cluster())
	}
	if err := join.CheckLeave(ctx, clusters, l.purge, how); err != nil {
		return command.Refused(err)
	}
	if err := l.confirm(ctx, peers); err != nil {
		return command.Refused(err)
	}
	if err := l.write(ctx, peers, how); err != nil {
		return command.Incompletef("%w\nRepeat the command to continue with what is left", err)
	}
	if l.wait && !l.dryRun {
		l.awaitNamespaces(ctx)
	}
	return l.finish(peers)
}

func (l *leaving) check(contexts []string) error {
	if err := l.output.Validate(); err != nil {
		return err
	}
	if len(contexts) == 0 {
		return command.Refusedf("no context is given; expected that of the leaving cluster first, as in kubectl comity leave c a b")
	}
	if l.id != "" {
		if l.purge {
			return command.Refusedf("--purge and --id are given; a lost cluster cannot be purged; leave out one of them")
		}
		if _, err := model.ParseClusterID(l.id); err != nil {
			return command.Refusedf("--id: %w", err)
		}
	}
	named := contexts
	if l.hub != "" && !slices.Contains(contexts, l.hub) {
		named = append(slices.Clone(contexts), l.hub)
	}
	_, err := l.env.ContextNames(named)
	return err
}

// open connects to all clusters. One that remains and does not answer is noted,
// since the others must be able to forget.
func (l *leaving) open(ctx context.Context, contexts []string) error {
	remaining := contexts
	var targets []*command.Target
	if l.id == "" {
		remaining = contexts[1:]
		target, err := l.env.Open(ctx, contexts[0])
		if err != nil {
			return command.Refusedf("%w\nIf this cluster is lost, remove it from those that remain: kubectl comity leave --id ID %s", err, orRemaining(remaining))
		}
		left, err := installedOrLeft(ctx, target)
		if err != nil {
			return command.Refused(err)
		}
		l.target, l.leaver, l.mode, targets = target, left.cluster(), left.agent.Mode, append(targets, target)
	}
	for _, name := range remaining {
		target, err := l.env.Open(ctx, name)
		if err != nil {
			l.lost[name] = err
			continue
		}
		left, err := installedOrLeft(ctx, target)
		if err != nil {
			return command.Refused(err)
		}
		l.remaining, targets = append(l.remaining, left), append(targets, target)
	}
	if err := command.Distinct(targets); err != nil {
		return err
	}
	if l.id != "" {
		if len(l.remaining) == 0 {
			return command.Refused(l.lostErrors())
		}
		l.leaver = join.Cluster{ID: model.ClusterID(l.id), Set: l.remaining[0].agent.Set}
	}
	if l.hub != "" {
		var err error
		if l.atHub, err = l.env.Open(ctx, l.hub); err != nil {
			l.lost[l.hub] = err
		}
	}
	return l.checkTogether()
}

// checkTogether refuses what cannot be one clusterset.
func (l *leaving) checkTogether() error {
	for _, s := range l.remaining {
		if s.agent.ID == l.leaver.ID {
			return command.Refusedf("context %q leads to cluster %s itself; expected contexts of clusters that remain", s.target.Context, s.agent.ID)
		}
		if s.agent.Set != l.leaver.Set {
			return command.Refusedf("cluster %s (context %q) belongs to clusterset %q and cluster %s to %q; expected members of one clusterset",
				s.agent.ID, s.target.Context, s.agent.Set, l.leaver.ID, l.leaver.Set)
		}
		if err := checkMode(s, l.hub != ""); err != nil {
			return err
		}
	}
	return nil
}

func (l *leaving) lostErrors() error {
	var all []error
	for _, name := range sortedKeys(l.lost) {
		all = append(all, l.lost[name])
	}
	return errors.Join(all...)
}

func orRemaining(contexts []string) string {
	if len(contexts) == 0 {
		return "REMAINING..."
	}
	return strings.Join(contexts, " ")
}

// installedOrLeft is a cluster with its agent, or with what the Lease says of the one
// that was there: leaving must be possible after Comity was uninstalled.
func installedOrLeft(ctx context.Context, target *command.Target) (site, error) {
	found, err := agent.Find(ctx, target)
	switch {
	case errors.Is(err, agent.ErrNotRunning) && found.ID != "":
		return site{target, found, true}, nil
	case errors.Is(err, agent.ErrNotInstalled):
		found, err = leftBehind(ctx, target, err)
		return site{target, found, true}, err
	}
	return site{target: target, agent: found}, err
}

// peers are the members that know the leaving cluster, or that it knows.
func (l *leaving) peers(ctx context.Context) ([]model.ClusterID, error) {
	var all []model.ClusterID
	for _, s := range l.remaining {
		all = append(all, s.agent.ID)
	}
	if l.leaver.RESTConfig != nil {
		known, err := join.Peers(ctx, l.leaver)
		if err != nil {
			return nil, err
		}
		all = append(all, known...)
	} else if l.hub != "" {
		known, err := join.Peers(ctx, l.remaining[0].cluster())
		if err != nil {
			return nil, err
		}
		all = append(all, slices.DeleteFunc(known, func(id model.ClusterID) bool { return id == l.leaver.ID })...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// write removes what there is, at the peers first.
func (l *leaving) write(ctx context.Context, peers []model.ClusterID, how join.Options) error {
	others := make([]join.Cluster, 0, len(peers))
	for _, id := range peers {
		other := join.Cluster{ID: id, Set: l.leaver.Set}
		for _, s := range l.remaining {
			if s.agent.ID == id {
				other = s.cluster()
			}
		}
		others = append(others, other)
	}
	leaver := l.leaver
	if l.purge {
		leaver.RESTConfig = nil // Purge removes more than Disconnect does, and needs no agent
	}
	reachable := slices.ContainsFunc(others, func(c join.Cluster) bool { return c.RESTConfig != nil })
	switch {
	case l.hub != "":
		hub := join.Hub{}
		if l.atHub != nil {
			hub.RESTConfig = l.atHub.REST
		}
		if err := join.DisconnectHub(ctx, hub, leaver, others, how); err != nil {
			return err
		}
	case len(others) > 0 && (reachable || leaver.RESTConfig != nil):
		if err := join.Disconnect(ctx, leaver, others, how); err != nil {
			return err
		}
	}
	if !l.purge {
		return nil
	}
	if err := l.stopAgent(ctx); err != nil {
		return err
	}
	return join.Purge(ctx, l.leaver, how)
}
