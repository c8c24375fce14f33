// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

// site is a cluster with the agent that is installed there.
type site struct {
	target *command.Target
	agent  agent.Agent
	// stopped is true if no replica of the agent leads.
	stopped bool
}

// cluster is the site in the form that sync/join takes.
func (s site) cluster() join.Cluster {
	return join.Cluster{
		ID: s.agent.ID, Set: s.agent.Set, Namespace: s.agent.Namespace, ServiceAccount: s.agent.ServiceAccount,
		RESTConfig: s.target.REST, PodCIDRs: s.agent.PodCIDRs, ServiceCIDRs: s.agent.ServiceCIDRs, Unattended: s.stopped,
	}
}

// openSites connects to contexts and finds their agents. All problems are
// collected, so that they can be solved together.
func openSites(ctx context.Context, env *command.Env, contexts []string) ([]site, error) {
	targets, err := env.OpenAll(ctx, contexts)
	if err != nil {
		return nil, err
	}
	var sites []site
	var problems []error
	for _, target := range targets {
		found, err := agent.Find(ctx, target)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		sites = append(sites, site{target: target, agent: found})
	}
	return sites, command.Refused(errors.Join(problems...))
}

// checkSites refuses agents that cannot be one clusterset. hub is true if
// --hub is given.
func checkSites(sites []site, hub bool) error {
	for i, s := range sites {
		for _, earlier := range sites[:i] {
			if earlier.agent.ID == s.agent.ID {
				return command.Refusedf("the agents of contexts %q and %q both say that their cluster is %s; ids are unique in a clusterset; install one of them again with another clusterID",
					earlier.target.Context, s.target.Context, s.agent.ID)
			}
			if earlier.agent.Set != s.agent.Set {
				return command.Refusedf("cluster %s (context %q) belongs to clusterset %q and cluster %s (context %q) to %q; only members of one clusterset can be joined; install one of them again with the other's clusterset",
					earlier.agent.ID, earlier.target.Context, earlier.agent.Set, s.agent.ID, s.target.Context, s.agent.Set)
			}
		}
		if err := checkMode(s, hub); err != nil {
			return err
		}
		if err := checkKinds(s.target, s.agent.Namespace); err != nil {
			return err
		}
	}
	return nil
}

func checkMode(s site, hub bool) error {
	switch {
	case hub && s.agent.Mode != model.ExchangeHub:
		return command.Refusedf("cluster %s (context %q) publishes in its own API server, and --hub is given; install Comity there with exchange.hub=true, or leave out --hub",
			s.agent.ID, s.target.Context)
	case !hub && s.agent.Mode == model.ExchangeHub:
		return command.Refusedf("cluster %s (context %q) publishes in a hub; name the hub's context with --hub, or install Comity there with exchange.hub=false",
			s.agent.ID, s.target.Context)
	}
	return nil
}

// kinds are those that an agent reads or writes in its cluster.
func kinds() []schema.GroupVersionKind {
	exchange := exchangev1alpha1.GroupVersion
	mcs := schema.GroupVersion{Group: "multicluster.x-k8s.io", Version: "v1beta1"}
	return []schema.GroupVersionKind{
		exchange.WithKind("ExportRecord"), exchange.WithKind("ImportRecord"), exchange.WithKind("MemberRecord"), exchange.WithKind("NamespaceRecord"), exchange.WithKind("Peer"),
		mcs.WithKind("ServiceExport"), mcs.WithKind("ServiceImport"),
	}
}

// checkKinds refuses a cluster that lacks a definition, or has one that is too
// old to serve the version in use.
func checkKinds(target *command.Target, namespace string) error {
	var missing []string
	for _, kind := range kinds() {
		_, err := target.Client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(err) {
			missing = append(missing, fmt.Sprintf("%s %s", kind.GroupVersion(), kind.Kind))
		} else if err != nil {
			return command.Refused(target.Errorf("read which kinds are served: %w", err))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return command.Refused(target.Errorf("the API server does not serve %s; the CustomResourceDefinitions are missing or too old; install them: helm upgrade comity oci://ghcr.io/comity-mcs/charts/comity --kube-context %s --namespace %s --reuse-values --set crds.enabled=true,crds.mcs.enabled=true",
		strings.Join(missing, ", "), target.Context, namespace))
}

// staleAfter is when a Lease that is renewed every few seconds is suspicious.
const staleAfter = 2 * time.Minute

// warnOf prints what does not keep clusters from being joined.
func warnOf(env *command.Env, sites []site, now time.Time) {
	var agents []agent.Agent
	for _, s := range sites {
		agents = append(agents, s.agent)
		if age := now.Sub(s.agent.Renewed); age > staleAfter {
			env.Warnf("the leader of Comity in cluster %s renewed its Lease %s ago; see its log, or the clock of this machine", s.agent.ID, age.Round(time.Second))
		}
	}
	if skew := agent.Skew(command.Version, agents); skew != "" {
		env.Warnf("%s", skew)
	}
}

// idsOf are the ids of sites, for messages.
func idsOf(sites []site) string {
	var ids []model.ClusterID
	for _, s := range sites {
		ids = append(ids, s.agent.ID)
	}
	slices.Sort(ids)
	return joinIDs(ids)
}
