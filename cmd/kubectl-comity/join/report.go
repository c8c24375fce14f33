// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

// report prints one line for every object, as it is written.
type report struct {
	env   *command.Env
	start time.Time
	steps []join.Step
	// confirm are the commands that end what a replaced cluster does not publish.
	confirm []string
}

func newReport(env *command.Env) *report { return &report{env: env, start: time.Now()} }

func (r *report) step(step join.Step) {
	r.steps = append(r.steps, step)
	r.env.Printf("[%5.1fs] %s\n", time.Since(r.start).Seconds(), step)
}

// counts says how many objects were dealt with, by what became of them.
func (r *report) counts() string {
	count := map[join.Verb]int{}
	for _, step := range r.steps {
		count[step.Verb]++
	}
	var texts []string
	for _, verb := range slices.Sorted(maps.Keys(count)) {
		texts = append(texts, fmt.Sprintf("%d %s", count[verb], verb))
	}
	return cmp.Or(strings.Join(texts, ", "), "nothing to do")
}

func (r *report) summary(how join.Options, sites []*agent.Site) {
	ids, after := model.Join(idsOf(clustersOf(sites)), ", "), fmt.Sprintf("%s in %.1f s", r.counts(), time.Since(r.start).Seconds())
	switch {
	case how.DryRun:
		r.env.Printf("\nDry run, nothing was written. Without --dry-run: %s.\n", after)
	case how.Rotate:
		r.env.Printf("\nRotated the credentials of clusters %s: %s. The old tokens are refused within 10 s.\n", ids, after)
	default:
		r.env.Printf("\nJoined clusters %s of clusterset %s: %s.\nNext: kubectl comity status %s --wait 1m\n", ids, sites[0].Agent.Set, after, contextsOf(sites))
		for _, command := range r.confirm {
			r.env.Printf("To remove what the new cluster does not publish, once it has all its manifests: %s\n", command)
		}
	}
}

// contextsOf are the contexts of sites as arguments.
func contextsOf(sites []*agent.Site) string {
	return strings.Join(model.Map(sites, func(s *agent.Site) string { return s.Context }), " ")
}

// replacements shows which clusters are replaced, and what is imported from those before.
func (r *report) replacements(ctx context.Context, all []join.Replacement, sites []*agent.Site) error {
	for _, replaced := range all {
		at := sites[slices.IndexFunc(sites, func(s *agent.Site) bool { return s.Agent.ID == replaced.Holder })]
		imports, _, err := join.CountImports(ctx, at.Target.Client, replaced.Peer)
		if err != nil {
			return at.Target.Errorf("%w", err)
		}
		r.env.Printf("In cluster %s, cluster %s is replaced: UID %s becomes %s. Imports with an export of the cluster before: %d. They stay\n",
			replaced.Holder, replaced.Peer, replaced.Old, replaced.New, imports)
		r.confirm = append(r.confirm, fmt.Sprintf("kubectl comity confirm missing %s --context %s", replaced.Peer, at.Context))
	}
	return nil
}

func clustersOf(sites []*agent.Site) []join.Cluster { return model.Map(sites, (*agent.Site).Cluster) }

// openHub is the cluster of --hub; nil if none is given. It lacks the RESTConfig if it does not answer.
func openHub(ctx context.Context, env *command.Env, name string) (*join.Cluster, error) {
	if name == "" {
		return nil, nil
	}
	at, err := env.OpenAll(ctx, []string{name})
	if err != nil {
		return &join.Cluster{}, err
	}
	return &join.Cluster{RESTConfig: at[0].REST}, nil
}

// checkModes refuses agents that do not publish where --hub says.
func checkModes(sites []*agent.Site, hub bool) error {
	where, instead := "a hub", "name its context with"
	if hub {
		where, instead = "its own API server", "leave out"
	}
	for _, s := range sites {
		if hub != (s.Agent.Mode == model.ExchangeHub) {
			return fmt.Errorf("cluster %s (context %q) publishes in %s; %s --hub, or install Comity there with exchange.hub=%t", s.Agent.ID, s.Context, where, instead, hub)
		}
	}
	return nil
}

// idsOf are the ids of clusters, in order.
func idsOf(clusters []join.Cluster) []model.ClusterID {
	return slices.Sorted(slices.Values(model.Map(clusters, func(c join.Cluster) model.ClusterID { return c.ID })))
}
