// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
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

// clusterOf is a site in the form that sync/join takes.
func clusterOf(s *agent.Site) join.Cluster {
	return join.Cluster{
		ID: s.Agent.ID, Set: s.Agent.Set, Namespace: s.Agent.Namespace, ServiceAccount: s.Agent.ServiceAccount,
		RESTConfig: s.Target.REST, PodCIDRs: s.Agent.PodCIDRs, ServiceCIDRs: s.Agent.ServiceCIDRs, Unattended: s.Err != nil,
	}
}

func clustersOf(sites []*agent.Site) (clusters []join.Cluster) {
	for _, s := range sites {
		clusters = append(clusters, clusterOf(s))
	}
	return clusters
}

// openHub connects to the cluster of --hub; nil if none is given.
func openHub(ctx context.Context, env *command.Env, name string) (*command.Target, error) {
	if name == "" {
		return nil, nil
	}
	if _, err := env.ContextNames([]string{name}); err != nil {
		return nil, err
	}
	return env.Open(ctx, name)
}

// checkSites refuses agents that cannot be one clusterset.
func checkSites(sites []*agent.Site) error {
	for i, s := range sites {
		for _, other := range sites[:i] {
			if other.Agent.ID == s.Agent.ID {
				return command.Refusedf("the agents of contexts %q and %q both say that their cluster is %s; ids are unique in a clusterset; install one of them again with another clusterID",
					other.Context, s.Context, s.Agent.ID)
			}
			if other.Agent.Set != s.Agent.Set {
				return command.Refusedf("cluster %s (context %q) belongs to clusterset %q and cluster %s (context %q) to %q; expected members of one clusterset; install one of them again with the other's clusterset",
					other.Agent.ID, other.Context, other.Agent.Set, s.Agent.ID, s.Context, s.Agent.Set)
			}
		}
	}
	return nil
}

// checkModes refuses agents that do not publish where --hub says.
func checkModes(sites []*agent.Site, hub bool) error {
	for _, s := range sites {
		switch {
		case hub && s.Agent.Mode != model.ExchangeHub:
			return command.Refusedf("cluster %s (context %q) publishes in its own API server, and --hub is given; install Comity there with exchange.hub=true, or leave out --hub",
				s.Agent.ID, s.Context)
		case !hub && s.Agent.Mode == model.ExchangeHub:
			return command.Refusedf("cluster %s (context %q) publishes in a hub; name the hub's context with --hub, or install Comity there with exchange.hub=false",
				s.Agent.ID, s.Context)
		}
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
func warnOf(env *command.Env, sites []*agent.Site) {
	var agents []agent.Agent
	for _, s := range sites {
		agents = append(agents, s.Agent)
		if age := time.Since(s.Agent.Renewed); age > staleAfter {
			env.Warnf("the leader of Comity in cluster %s renewed its Lease %s ago; see its log, or the clock of this machine", s.Agent.ID, age.Round(time.Second))
		}
	}
	if skew := agent.Skew(command.Version, agents); skew != "" {
		env.Warnf("%s", skew)
	}
}

// idsOf are the ids of clusters, for messages.
func idsOf(clusters []join.Cluster) string {
	var ids []string
	for _, c := range clusters {
		ids = append(ids, string(c.ID))
	}
	slices.Sort(ids)
	return strings.Join(ids, ", ")
}
