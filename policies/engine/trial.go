// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/lru"

	"github.com/comity-mcs/comity/policies/v1alpha1"
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
// time. Its Temporary is true. Loading or checking the policy once more tries it again.
var ErrNoTrial error = noTrial{}

type noTrial struct{}

// Error implements error.
func (noTrial) Error() string { return "no trial" }

// Temporary reports that another attempt may succeed.
func (noTrial) Temporary() bool { return true }

// trials keep the results of the last maxTrials trials. All methods may be called from any
// goroutine.
type trials struct {
	try     Trial // nil: everything is good
	results *lru.Cache
}

// newTrials has no results.
func newTrials(try Trial) *trials { return &trials{try: try, results: lru.New(maxTrials)} }

// trialKey is what the compiler sees of a policy.
func trialKey(p Policy) string {
	return sum(p.Name, p.Module, string(p.Params), string(p.ParametersSchema), string(cmp.Or(p.Stage, v1alpha1.StageExport)))
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
	kept, known := t.results.Get(trialKey(p))
	err, _ := kept.(error)
	return err, known
}

// prepare tries the policies that were not tried, all together. It is called without
// any lock, so that nobody waits for it but its caller.
func (t *trials) prepare(list []Policy, limit time.Duration) {
	if t.try == nil {
		return
	}
	var untried []Policy
	for _, p := range list {
		if err, known := t.known(p); (!known || errors.Is(err, ErrNoTrial)) && readable(p.file(), p.Module) == nil {
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
	for i, p := range list {
		t.results.Add(trialKey(p), results[i])
	}
	return results
}

// TooCostly is the error of a policy that exceeded a limit of its trial: file, row and
// column, and what limit.
func TooCostly(p Policy, what string) error {
	return fmt.Errorf("%s:1:1: compiling the module takes %s; expected a module that compiles within these limits: "+
		"nest less, and write fewer or smaller rules", p.file(), what)
}
