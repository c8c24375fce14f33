// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/comity-mcs/comity/sync/remote/budget"
)

// readSize bounds one read of a response, so that no read asks for more than a burst.
const readSize = 256 << 10

// meter counts what is read of the response to one request. That of a watch counts
// from the last event that was delivered, because client-go reads a whole event of
// JSON into memory, however long it is.
type meter struct {
	limit int64
	what  string
	read  atomic.Int64
	// exceeded, if not nil, is set with the first read beyond the limit.
	exceeded *atomic.Pointer[budget.Exceeded]
}

type meterKey struct{}

// count adds n bytes.
func (m *meter) count(n int) error {
	if m.read.Add(int64(n)) <= m.limit {
		return nil
	}
	limit := &budget.Exceeded{Limit: fmt.Sprintf("%d bytes in %s", m.limit, m.what)}
	if m.exceeded != nil {
		m.exceeded.Store(limit)
	}
	return limit
}

// meteredBody reads a body at the speed, and up to the size, that the limits allow.
type meteredBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelFunc // ends the deadline of the request
	flow   *flow
	meter  *meter
}

// Close implements io.Closer.
func (b *meteredBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

// Read implements io.Reader. The error for a body that is too long, or cannot be read in
// time at that speed, is a *budget.Exceeded.
func (b *meteredBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), readSize)])
	if limit := b.meter.count(n); limit != nil {
		return 0, limit
	}
	if n > 0 {
		if slow := b.flow.wait(b.ctx, n); slow != nil {
			return n, slow
		}
	}
	return n, err
}

// budgeted forwards the events of a watch as long as f is within the limits.
func (f *feed) budgeted(ctx context.Context, inner watch.Interface, m *meter) watch.Interface {
	events := make(chan watch.Event)
	out := watch.NewProxyWatcher(events)
	f.connection.done.Go(func() {
		defer close(events)
		defer inner.Stop()
		err := f.forward(inner, events, out.StopChan(), m)
		if over := f.exceeded.Load(); over != nil {
			err = over
		}
		if err != nil {
			f.result(ctx, err)
		}
	})
	return out
}

// errOtherKind is for an event with an object of another kind than the feed is of.
var errOtherKind = errors.New("an object of another kind")

// forward ends with the first event that is beyond a limit, which sets exceeded, or of another
// kind: an informer would log each of those.
func (f *feed) forward(from watch.Interface, to chan<- watch.Event, stopped <-chan struct{}, m *meter) error {
	for {
		var event watch.Event
		var open bool
		select {
		case <-stopped:
			return nil
		case event, open = <-from.ResultChan():
		}
		if !open || f.exceeded.Load() != nil {
			return nil
		}
		if event.Type != watch.Error && reflect.TypeOf(event.Object) != f.object {
			return errOtherKind
		}
		m.read.Store(0)
		if exceeded := f.budget.Event(event); exceeded != nil {
			f.exceeded.Store(exceeded)
			return nil
		}
		select {
		case to <- event:
		case <-stopped:
			return nil
		}
	}
}

// count counts one page of a list of f.
func (f *feed) count(page runtime.Object, continued bool) *budget.Exceeded {
	objects, _ := apimeta.ExtractList(page) // client-go decoded it, so it is a list
	list, _ := apimeta.ListAccessor(page)
	last := list.GetContinue() == ""
	limit := f.budget.Page(objects, !continued, last)
	if last && limit == nil {
		f.exceeded.Store(nil)
	}
	return limit
}

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
