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

// Change is that of the policies in use by this one, which is added, or replaces the one of its name.
// After it is an engine of its own, which answers as e would once the policy is stored. The error is
// that of the policy if it cannot be used, as in Result.
//
// The two share what they compiled, and nothing that an evaluation leaves: the new engine
// has its own Failures.
func (e *Engine) Change(policy Policy) (Change, error) {
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
	return Change{e, other, policy.Name}, other.Load(list)[at].Err
}

// Change is a change of the policies in use: two engines, which are not loaded meanwhile.
type Change struct {
	Before, After *Engine
	// Policy is the one that changes.
	Policy string
}

// Comparison is what a change does to the verdict on one subject.
type Comparison struct {
	// Matches: the policy that changes matches it.
	Matches bool
	// Before and After have no digest if they cannot differ: then nothing was evaluated.
	Before, After decision.Verdict
}

// Stage reports whether policies of a stage change, and whether the one that changes is of it.
func (c Change) Stage(stage v1alpha1.Stage) (differs, is bool) {
	return c.differs(func(v *version) bool { return v.isOf(stage) }), c.After.current.Load().versions[c.Policy].isOf(stage)
}

// Compare gives the verdicts before and after the change.
func (c Change) Compare(ctx context.Context, on *Subject) (out Comparison, _ error) {
	if err := on.read(c.Before.terms); err != nil {
		return out, err
	}
	out.Matches = on.matches(c.After.current.Load().versions[c.Policy])
	if c.differs(on.matches) {
		out.Before, _ = c.Before.EvaluateSubject(ctx, on, nil)
		out.After, _ = c.After.EvaluateSubject(ctx, on, nil)
	}
	return out, nil
}

// differs reports whether one of the two has a version that is so, and that the other
// one has not.
func (c Change) differs(is func(*version) bool) bool {
	a, b := c.Before.current.Load(), c.After.current.Load()
	for _, v := range slices.Concat(a.all, b.all) {
		one, two := a.versions[v.Name], b.versions[v.Name]
		same := one != nil && two != nil && one.source == two.source && fmt.Sprint(one.err) == fmt.Sprint(two.err)
		if !same && is(v) {
			return true
		}
	}
	return false
}
