// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/preview"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// evaluationTimeout bounds one evaluation. The agent's own is shorter, and a busy
// workstation should not be taken for a slow policy.
const evaluationTimeout = 5 * time.Second

// policyChange is what is tried.
type policyChange struct {
	given   []*v1alpha1.ExportPolicy
	replace bool
	without []string
	now     time.Time
}

// apply gives the policies of a cluster after the change, in the order in which the agent
// would load them.
func (p policyChange) apply(stored []v1alpha1.ExportPolicy) []*v1alpha1.ExportPolicy {
	given := func(name string) int {
		return slices.IndexFunc(p.given, func(g *v1alpha1.ExportPolicy) bool { return g.Name == name })
	}
	var out []*v1alpha1.ExportPolicy
	for i := range stored {
		policy := &stored[i]
		at := given(policy.Name)
		switch {
		case at >= 0:
			out = append(out, p.given[at]) // it keeps its age
		case !p.replace:
			out = append(out, policy)
		}
	}
	for _, policy := range p.given {
		if !slices.ContainsFunc(stored, func(s v1alpha1.ExportPolicy) bool { return s.Name == policy.Name }) {
			out = append(out, policy)
		}
	}
	return slices.DeleteFunc(out, func(policy *v1alpha1.ExportPolicy) bool { return slices.Contains(p.without, policy.Name) })
}

// simulate is what the change would do in one cluster. The error is that of a policy
// that is given and cannot be used.
func simulate(ctx context.Context, c *cluster, change policyChange) (Cluster, error) {
	stored := make([]*v1alpha1.ExportPolicy, len(c.policies))
	for i := range c.policies {
		stored[i] = &c.policies[i]
	}
	out := Cluster{Context: c.target.Context, ID: string(c.agent.ID), Unknown: c.unknown(), Policies: []string{}, Effects: []Effect{}}
	before, results, err := load(c, stored, change.now)
	if err != nil {
		return out, err
	}
	for _, result := range results {
		if result.Err != nil {
			out.Unknown = append(out.Unknown, fmt.Sprintf("ExportPolicy %s cannot be used as it is stored, so that exports it matches are not evaluated now", result.Name))
		}
	}
	for _, name := range change.without {
		if !slices.ContainsFunc(stored, func(p *v1alpha1.ExportPolicy) bool { return p.Name == name }) {
			return out, fmt.Errorf("flag --without: there is no ExportPolicy %s", name)
		}
	}
	wanted := change.apply(c.policies)
	after, results, err := load(c, wanted, change.now)
	if err != nil {
		return out, err
	}
	if err := change.problems(results); err != nil {
		return out, err
	}
	for _, policy := range wanted {
		out.Policies = append(out.Policies, policy.Name)
	}
	slices.Sort(out.Policies)
	report, err := preview.Run(ctx, preview.Change{Before: before, After: after}, c.source())
	if err != nil {
		return out, err
	}
	if ctx.Err() != nil {
		return out, context.Cause(ctx)
	}
	return out.with(report), nil
}

// load is an engine with these policies, as that of the agent.
func load(c *cluster, policies []*v1alpha1.ExportPolicy, now time.Time) (*engine.Engine, []engine.Result, error) {
	e, err := engine.New(engine.Options{Required: c.required, Timeout: evaluationTimeout})
	if err != nil {
		return nil, nil, fmt.Errorf("set up the policy engine: %w", err)
	}
	list := make([]engine.Policy, len(policies))
	for i, policy := range policies {
		list[i] = engine.FromObject(policy, now)
	}
	return e, e.Load(list), nil
}

// problems are those of the policies that are given.
func (p policyChange) problems(results []engine.Result) error {
	var errs []error
	for _, result := range results {
		given := slices.ContainsFunc(p.given, func(g *v1alpha1.ExportPolicy) bool { return g.Name == result.Name })
		if given && result.Err != nil {
			errs = append(errs, fmt.Errorf("ExportPolicy %s cannot be used:\n%w", result.Name, result.Err))
		}
	}
	return errors.Join(errs...)
}
