// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package engine compiles policies, swaps them atomically and evaluates them. No
// other package uses Rego or OPA.
//
// It takes Policies and decision.Inputs and gives Results and Verdicts. It fails
// closed: an export that cannot be evaluated is NotEvaluated and never Allowed. A
// policy that does not compile keeps its last good version and affects no other.
// It reads and writes no cluster, logs nothing and has no network. What policies
// may rely on is in policies/INPUT.md.
package engine

import (
	"fmt"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/comity-mcs/comity/policies"
)

// Defaults of Options.
const (
	// DefaultTimeout is hundreds of times what the baseline policies need, so that
	// no request is refused on a busy machine. It still gives an answer within a
	// second when slow policies take every slot: once for the wait, once for the
	// evaluation, half of it for one that does not stop.
	DefaultTimeout = 400 * time.Millisecond
	// perCPU evaluations run at once: each is bound by the CPU, and more would only
	// slow down all of them.
	perCPU = 2
)

// Options of New. The zero value is usable.
type Options struct {
	// Library is the Rego that policies may import, by file name, in packages
	// below comity.lib. policies.Library() when nil.
	Library map[string]string
	// Timeout bounds one evaluation, and again the wait for a free slot.
	// DefaultTimeout when 0.
	Timeout time.Duration
	// MaxConcurrent bounds how many evaluations run at once, because OPA bounds
	// no memory. Two for each CPU that Go uses when 0.
	MaxConcurrent int
}

// Engine holds the policies in use. All methods are safe for concurrent use.
type Engine struct {
	library map[string]*ast.Module
	sandbox sandbox
	timeout time.Duration
	slots   chan struct{}
	// loading serializes Load and Check; Evaluate never waits for it.
	loading sync.Mutex
	// current is nil until the first Load.
	current atomic.Pointer[snapshot]
}

// New makes an Engine without policies. It fails when the library does not
// compile, naming file, row and column.
func New(opts Options) (*Engine, error) {
	if opts.Library == nil {
		opts.Library = policies.Library()
	}
	if opts.Timeout == 0 {
		opts.Timeout = DefaultTimeout
	}
	if opts.MaxConcurrent == 0 {
		opts.MaxConcurrent = perCPU * runtime.GOMAXPROCS(0)
	}
	e := &Engine{
		library: map[string]*ast.Module{},
		sandbox: newSandbox(),
		timeout: opts.Timeout,
		slots:   make(chan struct{}, opts.MaxConcurrent),
	}
	for file, text := range opts.Library {
		module, err := e.parse(file, text)
		if err != nil {
			return nil, fmt.Errorf("policy library: %w", err)
		}
		e.library[file] = module
	}
	if _, err := e.compile(nil, e.sandbox.capabilities); err != nil {
		return nil, fmt.Errorf("policy library: %w", err)
	}
	return e, nil
}

// Loaded reports whether policies, or an empty list of them, were loaded.
func (e *Engine) Loaded() bool { return e.current.Load() != nil }

// Digest names the set of policies in use; empty until the first Load. Two
// engines with equal digests answer alike.
func (e *Engine) Digest() string {
	if snap := e.current.Load(); snap != nil {
		return snap.digest
	}
	return ""
}

// Load makes these the policies in use, all at once: an evaluation sees the old
// ones or the new ones, never some of each. It compiles here, before the swap.
//
// A policy that fails keeps its last good version, or is left out if it never
// had one. Where two claim one package, the one that holds it keeps it, else the
// one that comes first in the list. There is one Result per policy, in order.
func (e *Engine) Load(list []Policy) []Result {
	e.loading.Lock()
	defer e.loading.Unlock()
	last := map[string]*version{}
	if snap := e.current.Load(); snap != nil {
		last = maps.Clone(snap.versions)
	}

	candidates := make([]*candidate, len(list))
	for i, policy := range list {
		candidates[i] = e.candidate(policy, last[policy.Name])
		// A name that comes twice must not lend its last good version twice.
		delete(last, policy.Name)
	}
	assignPackages(candidates)
	err := e.swap(candidates)

	results := make([]Result, len(candidates))
	for i, c := range candidates {
		if err != nil && c.use != c.last {
			// Each compiled alone, so this is a fault of the engine's. What was in
			// use stays in use, as a whole.
			c.use, c.err = c.last, fmt.Errorf("the policies do not compile together: %w", err)
		}
		results[i] = c.result()
	}
	return results
}

// swap puts what the candidates use in the place of what is in use, unless that
// is the same: most loads are after a change of a policy's status alone.
func (e *Engine) swap(candidates []*candidate) error {
	used := map[string]*version{}
	for _, c := range candidates {
		if c.use != nil {
			used[c.name] = c.use
		}
	}
	if snap := e.current.Load(); snap != nil && maps.Equal(snap.versions, used) {
		return nil
	}
	snap, err := e.build(used)
	if err == nil {
		e.current.Store(snap)
	}
	return err
}

// Check gives the error that Load would give for a policy that is added to the
// policies in use, or replaces the one of its name. It changes nothing.
func (e *Engine) Check(policy Policy) error {
	e.loading.Lock()
	defer e.loading.Unlock()
	v, err := e.version(policy)
	if err != nil {
		return err
	}
	if snap := e.current.Load(); snap != nil {
		for name, other := range snap.versions {
			if name != policy.Name && other.pkg == v.pkg {
				return samePackage(v, other)
			}
		}
	}
	return nil
}

// candidate is one policy while Load decides which version of it to use.
type candidate struct {
	name string
	// last is the version in use until now; nil if none.
	last *version
	// use is the version to be used from now on; nil if none.
	use *version
	// err says why use is not the version that was given.
	err error
}

func (e *Engine) candidate(policy Policy, last *version) *candidate {
	c := &candidate{name: policy.Name, last: last}
	if last != nil && last.source == policy.source() {
		c.use = last
		return c
	}
	if c.use, c.err = e.version(policy); c.err != nil {
		c.use = last
	}
	return c
}

func (c *candidate) result() Result {
	result := Result{Name: c.name, Err: c.err}
	if c.use != nil {
		result.Digest = c.use.digest
	}
	return result
}

// precedence is the order in which packages are assigned: first to policies that
// have theirs already, then to those that change their package, then to new ones.
func (c *candidate) precedence() int {
	switch {
	case c.last != nil && c.use.pkg == c.last.pkg:
		return 0
	case c.last != nil:
		return 1
	default:
		return 2
	}
}

// assignPackages assigns every package to one policy. A policy that loses its
// package falls back to its last version, which needs a package too, so the
// assignment starts again. That happens at most once to each policy, so it ends.
func assignPackages(candidates []*candidate) {
	for again := true; again; {
		again = assignOnce(candidates)
	}
}

func assignOnce(candidates []*candidate) (again bool) {
	holders := map[string]*candidate{}
	for precedence := range 3 {
		for _, c := range candidates {
			if c.use == nil || c.precedence() != precedence {
				continue
			}
			if holder, taken := holders[c.use.pkg]; taken {
				c.err = samePackage(c.use, holder.use)
				c.use = c.last
				return true
			}
			holders[c.use.pkg] = c
		}
	}
	return false
}

func samePackage(v, holder *version) error {
	return fmt.Errorf("%s: package %s%s is that of policy %s already; expected a package of its own for each policy",
		v.location(), packagePrefix, v.pkg, holder.name)
}
