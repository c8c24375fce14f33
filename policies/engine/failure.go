// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"

	"github.com/comity-mcs/comity/policies/decision"
)

// Failure is what failed when a policy was evaluated.
type Failure struct {
	// Count is how many evaluations failed since this version of the policy was
	// loaded in this process.
	Count int64
	// Object, Operation and Message are those of the last one: kind, namespace and
	// name, what was evaluated, and what failed.
	Object    string
	Operation decision.Operation
	Message   string
}

// Failures are those of the policies that are loaded, by name of the policy; a
// policy that never failed is not there.
func (e *Engine) Failures() map[string]Failure {
	out := map[string]Failure{}
	snap := e.current.Load()
	if snap == nil {
		return out
	}
	for name, v := range snap.versions {
		if v.failures == nil {
			continue
		}
		v.failures.mu.Lock()
		if v.failures.last.Count > 0 {
			out[name] = v.failures.last
		}
		v.failures.mu.Unlock()
	}
	return out
}

// Failed receives after a failure; failures that nobody received yet count as one.
func (e *Engine) Failed() <-chan struct{} { return e.failed }

func (e *Engine) recordFailure(v *version, on Subject, err error) {
	v.failures.mu.Lock()
	v.failures.last = Failure{Count: v.failures.last.Count + 1, Object: on.String(), Operation: on.operation(), Message: err.Error()}
	v.failures.mu.Unlock()
	select {
	case e.failed <- struct{}{}:
	default:
	}
}

// failures are those of one version.
type failures struct {
	mu   sync.Mutex
	last Failure
}
