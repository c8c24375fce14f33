// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/comity-mcs/comity/sync/remote/budget"
)

// leaseBytes is how many bytes a second are read of responses with Leases. One has less
// than a kilobyte.
const leaseBytes = 64 << 10

// flow is how fast responses are read.
type flow struct {
	tokens *rate.Limiter
	limit  string

	mu      sync.Mutex
	slowing budget.Episode
}

func newFlow(perSecond, burst int64, what string) *flow {
	return &flow{tokens: rate.NewLimiter(rate.Limit(perSecond), int(max(burst, readSize))), limit: fmt.Sprintf("%d bytes%s per second", perSecond, what)}
}

// wait waits until n bytes more may be read. The error is a *budget.Exceeded if the
// response would not be read before its deadline.
func (f *flow) wait(ctx context.Context, n int) error {
	now := time.Now()
	reserved := f.tokens.ReserveN(now, n)
	delay := reserved.DelayFrom(now)
	if delay == 0 {
		return nil
	}
	f.mu.Lock()
	f.slowing.Note(now)
	f.mu.Unlock()
	if deadline, has := ctx.Deadline(); has && deadline.Before(now.Add(delay)) {
		reserved.CancelAt(now)
		return &budget.Exceeded{Limit: f.limit}
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		reserved.Cancel()
		return ctx.Err()
	}
}

// exceeded is the limit that slows down what is read; empty if it does not.
func (f *flow) exceeded() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.slowing.Lasts(time.Now()) {
		return f.limit
	}
	return ""
}

type leaseKey struct{}

// context is that of the requests of f. Leases, by which a peer counts as alive, do not
// wait until everything else was read.
func (f *feed) context(ctx context.Context) context.Context {
	if f.resource == "leases" {
		return context.WithValue(ctx, leaseKey{}, true)
	}
	return ctx
}

// SlowedBy is the limit that has slowed down for a while what is read of the peer; empty
// if none has.
func (c *Connection) SlowedBy() string { return c.transport.flow.exceeded() }
