// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// ErrNotLoaded is the error of an engine into which nothing was loaded yet.
var ErrNotLoaded = errors.New("policies are not loaded yet")

// With is an engine of its own with the policies in use and this one, in place of the
// one of its name if there is one: it answers as e would once the policy is stored.
// The error is that of the policy if it cannot be used, as in Result, or ErrNotLoaded.
//
// The two share what they compiled, and nothing that an evaluation takes or leaves:
// the new engine evaluates one export at a time, in a slot of its own, and keeps its
// own Failures.
func (e *Engine) With(policy Policy) (*Engine, error) {
	other, list, err := e.fork()
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(list, func(p Policy) bool { return p.Name == policy.Name })
	if at < 0 {
		at, list = len(list), append(list, policy) // the youngest
	}
	list[at] = policy
	return other, other.Load(list)[at].Err
}

// Copy is an engine of its own with the policies in use, as With.
func (e *Engine) Copy() (*Engine, error) {
	other, list, err := e.fork()
	if err == nil {
		other.Load(list)
	}
	return other, err
}

// fork is an engine of its own, and the policies that are in use.
func (e *Engine) fork() (*Engine, []Policy, error) {
	e.loading.Lock()
	list, snap := slices.Clone(e.list), e.current.Load()
	e.loading.Unlock()
	if snap == nil {
		return nil, nil, ErrNotLoaded
	}
	opts := e.opts
	opts.MaxConcurrent, opts.Registerer = 1, nil
	other, err := New(opts)
	if err != nil {
		return nil, nil, fmt.Errorf("copy the policy engine: %w", err)
	}
	other.trials = e.trials // what compiled within the limits need not be tried again
	// Load takes from these what has not changed, so that only the rest is compiled.
	compiled := &snapshot{versions: make(map[string]*version, len(snap.versions))}
	for name, v := range snap.versions {
		own := *v
		own.failures = &failures{}
		compiled.versions[name] = &own
	}
	other.current.Store(compiled)
	return other, list, nil
}

// Differs reports whether the two have different policies of a stage.
func (e *Engine) Differs(other *Engine, stage v1alpha1.Stage) bool {
	return e.differs(other, func(v *version) bool { return v.isOf(stage) })
}

// MayDiffer reports whether other may answer differently about the subject. If not,
// none of the policies in which the two differ matches it. Nothing is evaluated.
func (e *Engine) MayDiffer(other *Engine, on Subject) bool {
	return e.differs(other, func(v *version) bool { return v.isOf(on.stage()) && on.matches(v) })
}

// differs reports whether one of the two has a version that is so, and that the other
// one has not.
func (e *Engine) differs(other *Engine, is func(*version) bool) bool {
	a, b := e.current.Load(), other.current.Load()
	if a == nil || b == nil {
		return true
	}
	for _, v := range slices.AppendSeq(slices.Collect(maps.Values(a.versions)), maps.Values(b.versions)) {
		one, two := a.versions[v.Name], b.versions[v.Name]
		same := one != nil && two != nil && one.source == two.source && one.errText() == two.errText()
		if !same && is(v) {
			return true
		}
	}
	return false
}

// Of reports whether a policy that is loaded is of a stage.
func (e *Engine) Of(policy string, stage v1alpha1.Stage) bool {
	snap := e.current.Load()
	return snap != nil && snap.versions[policy] != nil && snap.versions[policy].isOf(stage)
}

// Matches reports whether a policy that is loaded matches the subject.
func (e *Engine) Matches(policy string, on Subject) bool {
	return e.Of(policy, on.stage()) && on.matches(e.current.Load().versions[policy])
}
