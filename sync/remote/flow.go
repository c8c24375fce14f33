// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/comity-mcs/comity/sync/remote/budget"
)

// smallBytes is how many bytes a second are read of responses with Leases, and the most that
// are read of a response with one object. A Lease or a token has less than a few kilobytes.
const smallBytes = 64 << 10

// slowReported is for how long a limit on the speed is reported after it was exceeded.
const slowReported = time.Minute

// flow is how fast responses are read.
type flow struct {
	tokens *rate.Limiter
	limit  string
	// slowed is when a response had to wait last, in Unix seconds.
	slowed atomic.Int64
}

func newFlow(perSecond, burst int64, what string) *flow {
	return &flow{tokens: rate.NewLimiter(rate.Limit(perSecond), int(max(burst, readSize))), limit: fmt.Sprintf("%d bytes%s per second", perSecond, what)}
}

// wait waits until n bytes more may be read. The error is a *budget.Exceeded if the
// response would not be read before its deadline.
func (f *flow) wait(ctx context.Context, n int) error {
	now := time.Now()
	if f.tokens.AllowN(now, n) {
		return nil
	}
	f.slowed.Store(now.Unix())
	err := f.tokens.WaitN(ctx, n)
	if err != nil && ctx.Err() == nil { // the deadline is too early
		return &budget.Exceeded{Limit: f.limit}
	}
	return err
}

// exceeded is the limit that has slowed down in the last minute what is read; empty if it has not.
func (f *flow) exceeded() string {
	if time.Since(time.Unix(f.slowed.Load(), 0)) > slowReported {
		return ""
	}
	return f.limit
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

// SlowedBy is the limit that slows down what is read of the peer; empty if none does.
func (c *Connection) SlowedBy() string { return c.transport.flow.exceeded() }
