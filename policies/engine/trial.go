// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Defaults of how long a trial may take.
const (
	// checkTime leaves the webhook, which has 3 s, time to answer.
	checkTime = 2 * time.Second
	// loadTime is for many policies at once, when a process starts.
	loadTime = time.Minute
	// maxTrials is how many results of trials are kept.
	maxTrials = 512
)

// Trial compiles policies, each alone, where the compiler can do no harm, and gives an
// error for each; nil if the policy compiled within the limits. OPA's compiler cannot be
// interrupted, and it bounds neither its memory nor its stack; what a policy does to
// it is known only after it was compiled. Package limited has one.
//
// An error that wraps ErrNoTrial says nothing about the policy.
type Trial func(ctx context.Context, list []Policy) []error

// ErrNoTrial says that there was no trial: no process could be started, or it had no
// time. Its Temporary is true.
var ErrNoTrial error = noTrial{}

type noTrial struct{}

// Error implements error.
func (noTrial) Error() string { return "no trial" }

// Temporary reports that another attempt may succeed.
func (noTrial) Temporary() bool { return true }

// trials are the results of trials. All methods may be called from any goroutine.
type trials struct {
	try Trial // nil: everything is good

	mu      sync.Mutex
	results map[string]error // by trialKey
	order   []string         // the oldest first
	// again holds one element after trials that did not take place.
	again chan struct{}
	// missed are the results of trials that did not take place. The next prepare tries again.
	missed map[string]error
}

// newTrials has no results.
func newTrials(try Trial) *trials {
	return &trials{try: try, results: map[string]error{}, missed: map[string]error{}, again: make(chan struct{}, 1)}
}

// Untried receives after policies could not be tried (ErrNoTrial): loading them once more
// tries them again.
func (e *Engine) Untried() <-chan struct{} { return e.trials.again }

// trialKey is what the compiler sees of a policy.
func trialKey(p Policy) string {
	return sum(p.Name, p.Module, string(p.Params), string(p.ParametersSchema), string(p.Stage))
}

// of is the result for one policy, which is tried if it was not.
func (t *trials) of(p Policy) error {
	if t.try == nil {
		return nil
	}
	if err, known := t.known(p); known {
		return err
	}
	return t.run([]Policy{p}, checkTime)[0]
}

func (t *trials) known(p Policy) (error, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err, missed := t.missed[trialKey(p)]; missed {
		return err, true
	}
	err, known := t.results[trialKey(p)]
	return err, known
}

// prepare tries the policies that were not tried, all together. It is called without
// any lock, so that nobody waits for it but its caller.
func (t *trials) prepare(list []Policy, limit time.Duration) {
	if t.try == nil {
		return
	}
	t.mu.Lock()
	clear(t.missed)
	t.mu.Unlock()
	var untried []Policy
	for _, p := range list {
		if _, known := t.known(p); !known && readable(p.file(), p.Module) == nil {
			untried = append(untried, p)
		}
	}
	if len(untried) > 0 {
		t.run(untried, limit)
	}
}

func (t *trials) run(list []Policy, limit time.Duration) []error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	results := t.try(ctx, list)
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, p := range list {
		if errors.Is(results[i], ErrNoTrial) {
			t.missed[trialKey(p)] = results[i]
			select {
			case t.again <- struct{}{}:
			default:
			}
		} else {
			t.keep(trialKey(p), results[i])
		}
	}
	return results
}

// keep forgets the oldest results: a policy that is loaded is tried again if it is
// loaded again, no more.
func (t *trials) keep(key string, err error) {
	if _, known := t.results[key]; !known {
		t.order = append(t.order, key)
	}
	t.results[key] = err
	for len(t.order) > maxTrials {
		delete(t.results, t.order[0])
		t.order = t.order[1:]
	}
}

// TooCostly is the error of a policy that exceeded a limit of its trial: file, row and
// column, and what limit.
func TooCostly(p Policy, what string) error {
	return fmt.Errorf("%s:1:1: compiling the module takes %s; expected a module that compiles within these limits: "+
		"nest less, and write fewer or smaller rules", p.file(), what)
}
