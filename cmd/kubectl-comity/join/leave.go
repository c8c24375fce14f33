// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

const leaveLong = `Take a cluster out of its clusterset.

The cluster of the first context leaves the clusters of the others. The command
shows how many imports lose an export by it, and asks. On both sides it then sets
spec.removed of the Peer, waits until the agent has removed what it imported, and
deletes the Peer, the credential, the account and the exchange namespace between the
two. Without REMAINING, it prints what to run in the other clusters. Repeat the
command if an agent did not run.

If the leaving cluster is lost, specify its id with --id; all contexts are then
those of remaining clusters.

With --purge, everything that Comity created in the leaving cluster is removed, and
the agent is scaled to 0 replicas. Until it is uninstalled, new ServiceExports are
refused. Objects that Comity did not create, ServiceExports and the
CustomResourceDefinitions stay.`

const leaveExample = `  # Cluster c leaves a and b.
  kubectl comity leave c a b

  # Cluster b does not exist any more.
  kubectl comity leave --id b a

  # Remove all that Comity created in cluster a, before it is uninstalled.
  kubectl comity leave a --purge`

// leaving are the flags of leave, and what it learns.
type leaving struct {
	env   *command.Env
	id    string
	hub   string
	purge bool
	how   join.Options
	yes   bool

	report *report
	// leaver is the cluster that leaves, and site where it is; without RESTConfig and nil if it is lost.
	leaver    join.Cluster
	site      *agent.Site
	remaining []*agent.Site
	// atHub is where the hub is; without RESTConfig if it does not answer, which hubLost says.
	atHub   *join.Cluster
	hubLost error
}

// NewLeave is the command leave.
func NewLeave(env *command.Env) *cobra.Command {
	l := &leaving{env: env}
	cmd := env.Command("leave LEAVING [REMAINING...]", "Take a cluster out of its clusterset, or remove all that Comity created there",
		leaveLong, leaveExample, 1, l.run)
	command.AddYes(cmd, &l.yes)
	flags := cmd.Flags()
	flags.StringVar(&l.id, "id", "", "The id of a leaving cluster that is lost; all contexts are those of remaining clusters")
	flags.StringVar(&l.hub, "hub", "", "Context of the hub in whose API server all members publish")
	flags.BoolVar(&l.purge, "purge", false, "Remove everything that Comity created in the leaving cluster, including imports")
	flags.BoolVar(&l.how.DryRun, "dry-run", false, "Print what would be removed, and remove nothing")
	cmd.MarkFlagsMutuallyExclusive("purge", "id") // a lost cluster cannot be purged
	return cmd
}

func (l *leaving) run(ctx context.Context, env *command.Env, contexts []string) error {
	if l.hub != "" {
		if _, err := env.ContextNames([]string{l.hub}); err != nil {
			return err
		}
	}
	if _, err := model.ParseClusterID(l.id); l.id != "" && err != nil {
		return fmt.Errorf("--id: %w", err)
	}
	l.report = newReport(l.env)
	l.how.Progress = l.report.step
	if err := l.open(ctx, contexts); err != nil {
		return err
	}
	peers, err := l.peers(ctx)
	if err != nil {
		return err
	}
	if l.site != nil && l.site.Agent.Mode == model.ExchangeHub && l.hub == "" && len(peers) > 0 {
		return fmt.Errorf("cluster %s publishes in a hub and has the peers %s; name the hub's context with --hub", l.leaver.ID, model.Join(idsOf(peers), ", "))
	}
	if err := l.confirm(ctx, peers); err != nil {
		return err
	}
	if err := l.write(ctx, peers); err != nil {
		return command.Incomplete(fmt.Errorf("%w\nRepeat the command to continue with what is left", err))
	}
	return l.finish(peers)
}

// open connects to all clusters. The others must be able to forget without one that does not
// answer, and without a hub. Leaving must be possible while no agent runs, and after Comity was
// uninstalled: then the Lease says what the agent was.
func (l *leaving) open(ctx context.Context, contexts []string) error {
	sites, err := agent.Sites(ctx, l.env, contexts)
	if err != nil {
		return err
	}
	if first := sites[0]; l.id == "" && first.Target == nil {
		return fmt.Errorf("%w\nIf this cluster is lost, remove it from those that remain: kubectl comity leave --id ID %s", first.Err, cmp.Or(contextsOf(sites[1:]), "REMAINING..."))
	}
	for _, s := range sites {
		switch {
		case s.Target == nil:
			return fmt.Errorf("%w\nLeave this context out; the output then has the command for its cluster, to be run when that answers", s.Err)
		case s.Err != nil && (s.Agent.ID == "" || !errors.Is(s.Err, agent.ErrNotRunning) && !errors.Is(s.Err, agent.ErrNotInstalled)):
			return s.Err
		}
	}
	l.remaining, l.leaver = sites, join.Cluster{ID: model.ClusterID(l.id), Set: sites[0].Agent.Set}
	if l.id == "" {
		l.leaver, l.site, l.remaining = sites[0].Cluster(), sites[0], sites[1:]
	}
	if s, is := model.Find(l.remaining, func(s *agent.Site) bool { return s.Agent.ID == l.leaver.ID }); is {
		return fmt.Errorf("context %q leads to cluster %s itself; expected contexts of clusters that remain", s.Context, l.leaver.ID)
	}
	l.atHub, l.hubLost = openHub(ctx, l.env, l.hub)
	return checkModes(l.remaining, l.hub != "")
}

// peers are the members that know the leaving cluster, or that it knows: those that remain, and
// those that were not given, without RESTConfig.
func (l *leaving) peers(ctx context.Context) ([]join.Cluster, error) {
	peers, from := clustersOf(l.remaining), l.site
	if from == nil && l.hub != "" {
		from = l.remaining[0]
	}
	if from == nil {
		return peers, nil
	}
	var known v1alpha1.PeerList
	if err := from.Target.Client.List(ctx, &known); err != nil && !meta.IsNoMatchError(err) {
		return nil, from.Target.Errorf("list the Peers: %w", err)
	}
	for _, peer := range known.Items {
		id := model.ClusterID(peer.Name)
		if id != l.leaver.ID && !slices.ContainsFunc(peers, func(c join.Cluster) bool { return c.ID == id }) {
			peers = append(peers, join.Cluster{ID: id, Set: l.leaver.Set})
		}
	}
	return peers, nil
}

// write removes what there is, at the peers first.
func (l *leaving) write(ctx context.Context, peers []join.Cluster) error {
	leaver := l.leaver
	if l.purge {
		leaver.RESTConfig = nil // Purge removes more than Disconnect does, and needs no agent
	}
	if l.atHub != nil || len(l.remaining) > 0 || leaver.RESTConfig != nil && len(peers) > 0 {
		if err := join.Disconnect(ctx, l.atHub, leaver, peers, l.how); err != nil {
			return err
		}
	}
	if !l.purge {
		return nil
	}
	if err := l.stopAgent(ctx); err != nil {
		return err
	}
	return join.Purge(ctx, l.leaver, l.how)
}

// stopTimeout bounds the wait for the end of the agent's Pods, whose grace period is 40 s.
const stopTimeout = 2 * time.Minute

// unfinished selects Pods that have not ended.
var unfinished = client.MatchingFieldsSelector{Selector: fields.ParseSelectorOrDie("status.phase!=Succeeded,status.phase!=Failed")}

// stopAgent scales Comity to 0 and waits until no Pod of it runs. Otherwise its
// leader would make what is removed again.
func (l *leaving) stopAgent(ctx context.Context) error {
	target := l.site.Target
	for _, d := range l.site.Agent.Deployments {
		replicas := ptr.Deref(d.Spec.Replicas, 1)
		if replicas == 0 {
			continue
		}
		if !l.how.DryRun {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))
			if err := target.Client.Patch(ctx, &d, patch, client.FieldOwner(join.FieldOwner)); err != nil {
				return target.Errorf("scale Deployment %s/%s to 0: %w", d.Namespace, d.Name, err)
			}
		}
		l.report.step(join.Step{
			Cluster: l.leaver.ID, Kind: "Deployment", Namespace: d.Namespace, Name: d.Name, Verb: join.Changed,
			Note: fmt.Sprintf("0 replicas; to continue with Comity, kubectl -n %s scale deployment %s --replicas=%d", d.Namespace, d.Name, replicas),
		})
	}
	if l.how.DryRun {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	return command.Await(ctx, func(ctx context.Context) error {
		var pods corev1.PodList
		err := target.Client.List(ctx, &pods, client.InNamespace(l.leaver.Namespace), agent.Labels, unfinished)
		switch {
		case err != nil:
			return target.Errorf("list the agent's Pods: %w", err)
		case len(pods.Items) > 0:
			return target.Errorf("%d Pods of the agent still run in namespace %s after %s (label %s); stop them",
				len(pods.Items), l.leaver.Namespace, stopTimeout, agent.NameLabel)
		}
		return nil
	})
}

// confirm shows how many imports lose an export, and asks.
func (l *leaving) confirm(ctx context.Context, peers []join.Cluster) error {
	var text strings.Builder
	fmt.Fprintf(&text, "Cluster %s leaves clusterset %s.\n", l.leaver.ID, l.leaver.Set)
	count := func(at model.ClusterID, target *command.Target, from ...model.ClusterID) error {
		lose, end, err := join.CountImports(ctx, target.Client, from...)
		if err != nil {
			return target.Errorf("%w", err)
		}
		fmt.Fprintf(&text, "In cluster %s (context %q), imports that lose an export: %d, of which %d are deleted with their clusterset IPs\n",
			at, target.Context, lose, end)
		return nil
	}
	if l.site != nil {
		if err := count(l.leaver.ID, l.site.Target, idsOf(peers)...); err != nil {
			return err
		}
	}
	for _, s := range l.remaining {
		if err := count(s.Agent.ID, s.Target, l.leaver.ID); err != nil {
			return err
		}
	}
	if l.purge {
		fmt.Fprintf(&text, "Everything that Comity created in cluster %s is deleted\n", l.leaver.ID)
	}
	return l.env.Confirm(l.yes || l.how.DryRun, text.String())
}

// finish prints what was done, and what is left to do elsewhere.
func (l *leaving) finish(peers []join.Cluster) error {
	var left []string
	for _, step := range l.report.steps {
		if step.Verb == join.Pending {
			left = append(left, fmt.Sprintf("Peer %s of cluster %s stays with spec.removed: %s; when the agent of cluster %s runs, repeat the command", step.Name, step.Cluster, step.Note, step.Cluster))
		}
	}
	pending := len(left) > 0
	again := "kubectl comity leave"
	if l.hub != "" {
		again += " --hub " + l.hub
	}
	has := func(where, what, contexts string) {
		left = append(left, fmt.Sprintf("%s still has the %s of cluster %s; run: %s --id %s %s", where, what, l.leaver.ID, again, l.leaver.ID, contexts))
	}
	if l.hubLost != nil {
		has(fmt.Sprintf("the hub (context %q) did not answer and", l.hub), "account and namespaces", cmp.Or(contextsOf(l.remaining), "REMAINING..."))
	}
	for _, peer := range peers {
		if peer.RESTConfig == nil {
			has("cluster "+string(peer.ID), "credential and account", "CONTEXT")
		}
	}
	done := fmt.Sprintf("Cluster %s left clusterset %s", l.leaver.ID, l.leaver.Set)
	if l.how.DryRun {
		done = "Dry run, nothing was removed. Without --dry-run"
	}
	l.env.Printf("\n%s: %s in %.1f s.\n", done, l.report.counts(), time.Since(l.report.start).Seconds())
	for _, text := range left {
		l.env.Printf("Left to do: %s\n", text)
	}
	if pending {
		return command.Incomplete(fmt.Errorf("not all agents have removed what they imported; see above how to finish"))
	}
	if l.hubLost != nil {
		return command.Incomplete(fmt.Errorf("%w\nWhat could be removed without the hub was removed; see above how to finish", l.hubLost))
	}
	return nil
}
