// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

const long = `Print the NetworkPolicy by which the Pods of an exported Service admit the clusters
that import it, by the addresses of their Pods. A namespaceSelector or podSelector
never matches a Pod of another cluster.

It is for the first of the given contexts that exports the Service. It admits the
clusters in the scope of the export. Their Pod ranges are read from the given contexts: the range
that kubeadm wrote down and those of the Nodes; or else from the Peer, which has what
join read. Where a network plugin gives Pods other addresses, pass --pod-cidrs. Where a
cluster masquerades traffic to others, pass the addresses of its Nodes.

The command writes to no cluster.`

// New gives the command networkpolicy.
func New(env *command.Env) *cobra.Command {
	var podCIDRs map[string]string
	cmd := &cobra.Command{
		Use:     "networkpolicy NAMESPACE/NAME [CONTEXT...]",
		Short:   "Print a NetworkPolicy that admits the clusters that import a Service",
		Long:    long,
		Example: "  kubectl comity networkpolicy shop/web a b\n  kubectl comity networkpolicy shop/web a --pod-cidrs b=10.2.0.0/16 | kubectl --context a apply -f -",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			known, err := given(podCIDRs)
			if err != nil {
				return err
			}
			return run(cmd.Context(), env, args[0], args[1:], known)
		},
		ValidArgsFunction: env.CompleteContexts,
	}
	cmd.Flags().StringToStringVar(&podCIDRs, "pod-cidrs", nil, "ID=RANGE,...: the ranges from which a cluster connects, instead of those that are read (repeatable)")
	return cmd
}

// given are the ranges of --pod-cidrs.
func given(podCIDRs map[string]string) (Known, error) {
	known := Known{}
	for _, id := range slices.Sorted(maps.Keys(podCIDRs)) {
		ranges, err := model.ParsePrefixes(strings.Split(podCIDRs[id], ","))
		if err != nil {
			return nil, fmt.Errorf("--pod-cidrs %s=%s: %w", id, podCIDRs[id], err)
		}
		known[model.ClusterID(id)] = join.Ranges{Pods: ranges, Source: "given with --pod-cidrs"}
	}
	return known, nil
}

func run(ctx context.Context, env *command.Env, name string, contexts []string, known Known) error {
	namespace, name, isKey := strings.Cut(name, "/")
	if !isKey {
		return fmt.Errorf("%q is no export; expected NAMESPACE/NAME, such as shop/web", namespace)
	}
	sites, err := agent.Sites(ctx, env, contexts)
	if err != nil {
		return err
	}
	for _, site := range sites { // a cluster that is not read may import all the same
		if err := known.learn(ctx, site); err != nil {
			env.Warnf("%v", err)
		}
	}
	for _, site := range sites {
		if site.Target == nil {
			continue
		}
		export := &mcsv1beta1.ServiceExport{}
		if err := site.Target.Get(ctx, namespace, name, export); err == nil {
			return show(ctx, env, site.Target, export, known)
		} else if !apierrors.IsNotFound(err) {
			return err
		}
	}
	return fmt.Errorf("none of the clusters that were read has a ServiceExport %s/%s; name the context of one that exports the Service", namespace, name)
}

// learn adds the ranges of a cluster that says them and is not known yet.
func (k Known) learn(ctx context.Context, site *agent.Site) error {
	if site.Target == nil || site.Agent.ID == "" {
		return site.Err
	}
	if _, isGiven := k[site.Agent.ID]; isGiven {
		return nil
	}
	ranges, err := join.RangesOf(ctx, site.Cluster())
	if len(ranges.Pods) > 0 {
		k[site.Agent.ID] = ranges
	}
	return err
}

// show prints the policy for one cluster that exports the Service, and where its addresses come from.
func show(ctx context.Context, env *command.Env, target *command.Target, export *mcsv1beta1.ServiceExport, known Known) error {
	key := client.ObjectKeyFromObject(export)
	s, err := read(ctx, target, key.Namespace)
	var peers v1alpha1.PeerList
	if err := errors.Join(err, target.Client.List(ctx, &peers)); err != nil {
		return target.Errorf("%w", err)
	}
	namespace, service, policies := s.of(key)
	if len(service.Spec.Selector) == 0 {
		return target.Errorf("Service %s has no selector, or does not exist, so no NetworkPolicy can be made for its Pods; select those behind its EndpointSlices by hand", key)
	}
	from, err := importers(export, &namespace, peers.Items, known)
	if err != nil {
		return target.Errorf("%w", err)
	}
	if len(from) == 0 {
		return target.Errorf("no other cluster is in the scope of ServiceExport %s, so there is nothing to admit", key)
	}
	comments := fmt.Sprintf("# For context %s. It admits to the Pods of exported Service %s:\n", target.Context, key)
	for _, i := range from {
		if len(i.Pods) == 0 {
			return target.Errorf("no Pod range of cluster %s is known; pass the addresses from which its Pods connect as --pod-cidrs %s=10.20.0.0/16", i.id, i.id)
		}
		comments += fmt.Sprintf("#   cluster %s: %s (%s)\n", i.id, strings.Join(model.PrefixTexts(i.Pods), ", "), i.Source)
	}
	content, err := yaml.Marshal(build(service, from))
	if err != nil {
		return fmt.Errorf("encode the NetworkPolicy: %w", err)
	}
	if len(selecting(policies, service.Spec.Selector)) == 0 {
		env.Warnf("context %q: no NetworkPolicy selects the Pods of Service %s, so they admit every client; with this one, they admit only these clusters", target.Context, key)
	}
	_, err = fmt.Fprintf(command.Whole(env.Out), "%s# If Pods connect from other addresses, such as those of Nodes, pass them: --pod-cidrs %s=RANGE,...\n%s", comments, from[0].id, content)
	return err
}
