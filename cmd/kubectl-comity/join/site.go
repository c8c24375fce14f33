// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
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
	return env.Open(ctx, name)
}

// checkModes refuses agents that do not publish where --hub says.
func checkModes(sites []*agent.Site, hub bool) error {
	for _, s := range sites {
		switch {
		case hub && s.Agent.Mode != model.ExchangeHub:
			return fmt.Errorf("cluster %s (context %q) publishes in its own API server; leave out --hub, or install Comity there with exchange.hub=true",
				s.Agent.ID, s.Context)
		case !hub && s.Agent.Mode == model.ExchangeHub:
			return fmt.Errorf("cluster %s (context %q) publishes in a hub; name its context with --hub, or install Comity there with exchange.hub=false",
				s.Agent.ID, s.Context)
		}
	}
	return nil
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
