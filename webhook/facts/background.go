// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/comity-mcs/comity/policies/decision"
)

// background are as many as this process has CPUs but one, and at least one. While
// every CPU evaluates, a request that comes in is noticed some ten milliseconds late.
var background = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1))

// How many times as long as it evaluated one of them pauses, and how long at most, so that
// little garbage is collected while requests are answered.
const (
	pauseFactor = 2
	pauseMost   = 10 * time.Millisecond
)

// requested is when the last request came, in nanoseconds. Requests come until requestsAfter later.
var requested atomic.Int64

const requestsAfter = time.Second

// backgroundWait is how long a call waits for others, which take a fraction of a
// millisecond each unless a policy does not end.
const backgroundWait = 100 * time.Millisecond

// InBackground calls evaluate for something that is stored, whose verdict is less
// urgent than the answer to a request. While requests come, one call less than there are CPUs
// runs at a time in this process, and the next one starts after a pause, so that they
// find a CPU that is free. After backgroundWait it runs all the same, so that a slow policy delays
// no export that it does not match.
//
// Otherwise all run at once, since the process that evaluates answers the faster the more it
// is asked at the same time.
func InBackground(ctx context.Context, evaluate func() decision.Verdict) decision.Verdict {
	if time.Since(time.Unix(0, requested.Load())) > requestsAfter {
		return evaluate()
	}
	slots := background
	select {
	case slots <- struct{}{}:
		begun := time.Now()
		defer func() {
			time.AfterFunc(min(pauseFactor*time.Since(begun), pauseMost), func() { <-slots })
		}()
	case <-time.After(backgroundWait):
	case <-ctx.Done():
		return decision.Verdict{Problem: fmt.Sprintf("other evaluations did not end in time: %v", ctx.Err())}
	}
	return evaluate()
}
