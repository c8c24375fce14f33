// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// ErrNotLoaded is the error of an engine into which nothing was loaded yet.
var ErrNotLoaded = errors.New("policies are not loaded yet")

// with is an engine of its own, which answers as e would once the policy is stored: added, or in place of the
// one of its name. The error is that of the policy if it cannot be used, as in Result.
//
// The two share what they compiled, and nothing that an evaluation leaves: the new engine
// has its own Failures.
func (e *Engine) with(policy Policy) (*Engine, error) {
	snap, opts := e.current.Load(), e.opts
	opts.Registerer = nil
	other := New(opts)
	// Load takes from it what has not changed, so that only the rest is compiled.
	other.current.Store(snap)
	list := slices.Clone(snap.list)
	at := slices.IndexFunc(list, func(p Policy) bool { return p.Name == policy.Name })
	if at < 0 {
		at, list = len(list), append(list, policy) // the youngest
	}
	list[at] = policy
	return other, other.Load(list)[at].Err
}

// Change is what storing a policy would do.
type Change struct {
	// Stages says whether policies of a stage change, and whether the one that is stored is of it.
	Stages map[v1alpha1.Stage][2]bool
	// Compare gives the verdicts on one subject before and after the change.
	Compare func(ctx context.Context, on *Subject) (Comparison, error)
}

// Comparison is what a change does to the verdict on one subject.
type Comparison struct {
	// Matches: the policy that changes matches it.
	Matches bool
	// Before and After have no digest if they cannot differ: then nothing was evaluated.
	Before, After decision.Verdict
}

// Change is what storing a policy would do. The error is that of the policy if it cannot be used.
func (e *Engine) Change(policy Policy) (Change, error) {
	other, err := e.with(policy)
	a, b := e.current.Load(), other.current.Load()
	stored := b.versions[policy.Name]
	// differs reports whether one of the two has a version that is so, and that the other one has not.
	differs := func(is func(*version) bool) bool {
		return slices.ContainsFunc(slices.Concat(a.all, b.all), func(v *version) bool {
			one, two := a.versions[v.Name], b.versions[v.Name]
			same := one != nil && two != nil && one.source == two.source && fmt.Sprint(one.err) == fmt.Sprint(two.err)
			return !same && is(v)
		})
	}
	change := Change{Stages: map[v1alpha1.Stage][2]bool{}, Compare: func(ctx context.Context, on *Subject) (out Comparison, _ error) {
		if err := on.read(e.terms); err != nil {
			return out, err
		}
		out.Matches = on.matches(stored)
		if differs(on.matches) {
			out.Before, _ = e.EvaluateSubject(ctx, on, nil)
			out.After, _ = other.EvaluateSubject(ctx, on, nil)
		}
		return out, nil
	}}
	for _, stage := range Stages {
		change.Stages[stage] = [2]bool{differs(func(v *version) bool { return v.isOf(stage) }), stored.isOf(stage)}
	}
	return change, err
}
