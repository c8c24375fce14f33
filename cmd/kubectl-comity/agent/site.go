// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/join"
)

// Site is a context with the agent of its cluster.
type Site struct {
	Context string
	// Target is nil if the cluster does not answer.
	Target *command.Target
	Agent  Agent
	// Err says why there is no Target, or is that of Find.
	Err error
}

// Cluster is the site in the form that sync/join takes.
func (s *Site) Cluster() join.Cluster {
	return join.Cluster{
		ID: s.Agent.ID, Set: s.Agent.Set, Namespace: s.Agent.Namespace, ServiceAccount: s.Agent.ServiceAccount,
		RESTConfig: s.Target.REST, PodCIDRs: s.Agent.PodCIDRs, ServiceCIDRs: s.Agent.ServiceCIDRs, Unattended: s.Err != nil,
	}
}

// Sites opens contexts side by side and finds their agents. Its error is of contexts that
// are not in the kubeconfig, or that lead to one cluster; others are in the Sites.
func Sites(ctx context.Context, env *command.Env, contexts []string) ([]*Site, error) {
	names, err := env.ContextNames(contexts)
	if err != nil {
		return nil, err
	}
	var sites []*Site
	for _, name := range names {
		sites = append(sites, &Site{Context: name})
	}
	Read(ctx, env, sites)
	var targets []*command.Target
	for _, s := range sites {
		if s.Target != nil {
			targets = append(targets, s.Target)
		}
	}
	return sites, command.Distinct(targets)
}

// Read opens those sites that did not answer before, and finds all agents again.
func Read(ctx context.Context, env *command.Env, sites []*Site) {
	command.InParallel(sites, func(_ int, s *Site) {
		if s.Target == nil {
			if s.Target, s.Err = env.Open(ctx, s.Context); s.Err != nil {
				s.Target = nil
				return
			}
		}
		s.Agent, s.Err = Find(ctx, s.Target)
	})
}

// Problems are the errors of sites, to be solved together.
func Problems(sites []*Site) error {
	var all []error
	for _, s := range sites {
		all = append(all, s.Err)
	}
	return errors.Join(all...)
}

// Skew says which versions run if some differ from each other, or from plugin, by more than
// one minor version; empty if none does. A version that is no release, such as that of a
// local build, differs from every other text. An agent whose version is not known, or that
// is not installed any more, is left out.
func Skew(plugin string, sites []*Site) string {
	versions, running, skewed := []string{plugin}, "this plugin is "+plugin, false
	for _, s := range sites {
		own := s.Agent.Version
		if own == "" || errors.Is(s.Err, ErrNotInstalled) {
			continue
		}
		skewed = skewed || slices.ContainsFunc(versions, func(other string) bool { return !compatible(own, other) })
		versions = append(versions, own)
		running += fmt.Sprintf(", cluster %s runs Comity %s", s.Agent.ID, own)
	}
	if !skewed {
		return ""
	}
	return running + "; expected at most one minor version of difference; upgrade the older ones"
}

func compatible(a, b string) bool {
	if a == b {
		return true
	}
	left, errLeft := version.ParseSemantic(a)
	right, errRight := version.ParseSemantic(b)
	return errLeft == nil && errRight == nil && left.Major() == right.Major() &&
		left.Minor() <= right.Minor()+1 && right.Minor() <= left.Minor()+1
}
