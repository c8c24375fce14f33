// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package engine compiles policies, swaps them atomically and evaluates them. No
// other package uses Rego or OPA.
//
// It takes Policies and decision.Inputs, or decision.ImportInputs, and gives Results
// and Verdicts. It fails closed: an export that cannot be evaluated is NotEvaluated and
// never Allowed. Each policy is compiled and evaluated by itself, with the library of its stage.
//
// The policies as they are stored are all that counts, and not what this process
// loaded before, so that every replica answers alike, whenever it started. There is
// no "last good version": a policy with enforcement Deny that cannot be used as it
// is stored makes every export that it matches NotEvaluated, by name, unless another
// policy denies that export. With Warn or Audit it is left out. A required policy that
// does not exist blocks every export in the same way.
//
// It reads and writes no cluster, logs nothing and has no network; it counts
// evaluations in metrics. What policies may rely on is in policies/INPUT.md.
package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/lru"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// DefaultTimeout is hundreds of times what the baseline policies need, so that no request
// is refused on a busy machine. It leaves time to evaluate policies again, each alone.
const DefaultTimeout = 400 * time.Millisecond

// compileTime is how long one policy may be compiled: OPA's compiler needs ten seconds for
// fifteen nested comprehensions.
const compileTime = time.Second

// Options of New. The zero value is usable.
type Options struct {
	// Timeout bounds one evaluation of one policy. DefaultTimeout when 0.
	Timeout time.Duration
	// Watch is called before policies are compiled, or evaluated, and what it returns after
	// that, with the time that it may take: OPA's compiler and some of its builtins do not
	// stop by themselves. What is done is named by the policy that is compiled or, with Apart,
	// evaluated, and by the Subject of another evaluation. Nobody is called when nil.
	Watch func(what string, limit time.Duration) (stop func()) `json:"-"`
	// Apart is true if one evaluation at a time is made.
	Apart bool
	// Required are the names of policies that must exist. One that is not in the list
	// that was loaded makes every export NotEvaluated, by its name.
	Required []string
	// Registerer takes the metrics of one Engine; none does when nil.
	Registerer prometheus.Registerer `json:"-"`
}

// Engine holds the policies in use. All methods are safe for concurrent use.
type Engine struct {
	// opts are those of New, with defaults.
	opts Options
	// terms are those that evaluations share.
	terms *lru.Cache
	Front
	// loading serializes Load; Evaluate never waits for it.
	loading sync.Mutex
	// current has no digest until the first Load.
	current atomic.Pointer[snapshot]
}

// New makes an Engine without policies.
func New(opts Options) *Engine {
	library() // here, and not in the time of the first policy that is compiled
	opts.Timeout = cmp.Or(opts.Timeout, DefaultTimeout)
	if opts.Watch == nil {
		opts.Watch = func(string, time.Duration) func() { return func() {} }
	}
	e := &Engine{opts: opts, terms: lru.New(maxTerms)}
	e.current.Store(&snapshot{})
	e.Front = Front{NewRecords(opts.Registerer), Writer{}, func(ctx context.Context, on *Subject) (decision.Verdict, []Evaluation) {
		return e.EvaluateSubject(ctx, on, nil)
	}}
	return e
}

// Digest names the set of policies in use; empty until the first Load. Two
// engines with equal digests answer alike.
func (e *Engine) Digest() string { return e.current.Load().digest }

// Load makes these the policies in use, all at once: an evaluation sees the old
// ones or the new ones, never some of each. It compiles here, before the swap.
//
// A policy that fails is not in use, whatever was before; see Evaluate for what it
// blocks. Of two with one name or one package the first in the list is used. There
// is one Result per policy, in order.
func (e *Engine) Load(list []Policy) []Result {
	e.loading.Lock()
	defer e.loading.Unlock()
	before := e.current.Load()
	versions := make([]*version, len(list))
	for i, policy := range list {
		if v := before.versions[policy.Name]; v != nil && v.err == nil && v.source == sum(policy) {
			versions[i] = v // compiled already
			continue
		}
		done := e.opts.Watch(policy.Name, compileTime)
		versions[i] = newVersion(policy)
		done()
	}
	refuseRepetitions(versions)
	for _, name := range e.opts.Required {
		if !slices.ContainsFunc(versions, func(v *version) bool { return v.Name == name }) {
			missing := &version{Policy: Policy{Name: name}, err: errMissing} // it matches every export
			missing.Enforcement = v1alpha1.Deny
			versions = append(versions, missing)
		}
	}
	e.current.Store(newSnapshot(list, versions))
	digests, results := make(map[string]string, len(versions)), make([]Result, len(versions))
	for i, v := range versions {
		digests[v.Name], results[i] = v.digest, Result{Name: v.Name, Err: v.err, Digest: v.digest}
	}
	e.Keep(digests)
	return results[:len(list)]
}

// refuseRepetitions makes every version unusable whose name or package an earlier
// one has.
func refuseRepetitions(versions []*version) {
	for i, v := range versions {
		holder := slices.IndexFunc(versions[:i], func(other *version) bool { return other.err == nil && other.pkg == v.pkg })
		if slices.ContainsFunc(versions[:i], func(other *version) bool { return other.Name == v.Name }) {
			versions[i] = v.unusable(fmt.Errorf("policy %s is in the list twice", v.Name))
		} else if v.err == nil && holder >= 0 {
			versions[i] = v.unusable(fmt.Errorf("%s: package %s%s is that of policy %s already; expected a package of its own for each policy",
				place(v.module.Package.Location), packagePrefix, v.pkg, versions[holder].Name))
		}
	}
}
