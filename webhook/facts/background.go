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

// How many times as long as it evaluated one of them pauses, and how long at most, while
// requests come: until so long after the last one. So little garbage is collected while
// they are answered.
const (
	pauseFactor = 2
	pauseMost   = 10 * time.Millisecond
	pauseAfter  = time.Second
)

// requested is when the last request came, in nanoseconds.
var requested atomic.Int64

// backgroundWait is how long a call waits for others, which take a fraction of a
// millisecond each unless a policy does not end.
const backgroundWait = 100 * time.Millisecond

// InBackground calls evaluate for something that is stored, whose verdict is less
// urgent than the answer to a request. One call less than there are CPUs runs at a time
// in this process, and while requests come the next one starts after a pause, so that they
// find a CPU that is free. After backgroundWait it runs all the same, so that a slow policy delays
// no export that it does not match.
func InBackground(ctx context.Context, evaluate func() decision.Verdict) decision.Verdict {
	slots, wait := background, time.NewTimer(backgroundWait)
	defer wait.Stop()
	select {
	case slots <- struct{}{}:
		begun := time.Now()
		defer func() {
			if time.Since(time.Unix(0, requested.Load())) > pauseAfter {
				<-slots
				return
			}
			time.AfterFunc(min(pauseFactor*time.Since(begun), pauseMost), func() { <-slots })
		}()
	case <-wait.C:
	case <-ctx.Done():
		return decision.Verdict{Outcome: decision.NotEvaluated, Problem: fmt.Sprintf("other evaluations did not end in time: %v", ctx.Err())}
	}
	return evaluate()
}
