// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"net"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/comity-mcs/comity/sync/remote/budget"
	"github.com/comity-mcs/comity/sync/restoredetect"
)

// reader lists and watches what a feed reads, and gives each result to the connection.
type reader struct {
	feed       *feed
	connection *Connection
	codec      runtime.ParameterCodec
	list       runtime.Object // of the type that a list has
	// readAll and open list and watch, and detect that the server was restored.
	readAll func(context.Context, metav1.ListOptions) (runtime.Object, error)
	open    func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// newReader is a reader as an informer uses it.
func newReader(f *feed, c *Connection, codec runtime.ParameterCodec, list runtime.Object) *toolscache.ListWatch {
	r := &reader{feed: f, connection: c, codec: codec, list: list}
	restored := func(found *restoredetect.Found) { c.opts.Hooks.Restored(c, found) }
	r.readAll = restoredetect.CheckedList(r.get, restored)
	r.open = restoredetect.CheckedWatch(r.get, r.openWatch, restored)
	return &toolscache.ListWatch{ListWithContextFunc: r.page, WatchFuncWithContext: r.watch}
}

func (r *reader) request(opts *metav1.ListOptions) *rest.Request {
	r.feed.limit(opts)
	// untilAnswered and the informer retry; retries of the request would only delay
	// the report of the failure.
	return r.feed.client.Get().Namespace(r.feed.namespace).Resource(r.feed.resource).VersionedParams(opts, r.codec).MaxRetries(1)
}

// get makes one request for a list.
func (r *reader) get(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	into := reflect.New(reflect.TypeOf(r.list).Elem()).Interface().(runtime.Object)
	return into, r.request(&opts).Do(r.feed.context(ctx)).Into(into)
}

// openWatch makes one request for a watch.
func (r *reader) openWatch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch, opts.AllowWatchBookmarks = true, true
	ctx, m := metered(r.feed.context(ctx), r.connection.opts.Limits.EventBytes, "one event")
	r.feed.elements.Store(nil)
	w, err := r.request(&opts).Watch(ctx)
	if err != nil || reflect.TypeOf(w) == emptyWatch {
		return w, err
	}
	return r.feed.budgeted(ctx, r.connection, w, m), nil
}

// page reads one page of a list, and counts what it has.
func (r *reader) page(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	f, c := r.feed, r.connection
	into, err := untilAnswered(ctx, func() (runtime.Object, error) {
		into, err := r.readAll(ctx, opts)
		// Success is only noted by the watch: where lists are allowed and
		// watches are not, the state must not flap.
		if err != nil {
			c.feedResult(ctx, f, err)
		}
		return into, err
	})
	if err != nil {
		return nil, err
	}
	if err := f.count(into, opts.Continue != ""); err != nil {
		c.feedResult(ctx, f, err)
		return nil, err
	}
	if f.confirmed {
		if err := c.confirmMember(ctx); err != nil {
			return nil, err // the feed of MemberRecords reports why
		}
	}
	return into, nil
}

// watch watches, unless the feed is beyond its limits.
func (r *reader) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	f, c := r.feed, r.connection
	if over := f.budget.Over(); over != nil { // a list shows whether that has changed
		c.feedResult(ctx, f, over)
		return nil, over
	}
	return untilAnswered(ctx, func() (watch.Interface, error) {
		w, err := r.open(ctx, opts)
		if err == nil && reflect.TypeOf(w) == emptyWatch {
			w, err = nil, errClosedEarly
		}
		c.feedResult(ctx, f, err)
		return w, err
	})
}

// client-go treats a connection that was closed before the response as a watch
// that ended early, and returns a watch without events.
var (
	emptyWatch     = reflect.TypeOf(watch.NewEmptyWatch())
	errClosedEarly = errors.New("the connection is closed before there is an answer")
)

// How long after the first and after any later failure an API server that does not
// answer is asked again, plus up to half of that.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 8 * time.Second
)

// untilAnswered makes request until the API server answers it, or ctx ends, and
// returns what came last. An informer would wait up to a minute between two attempts,
// and forgets that only two minutes after the last failure: some kinds of a peer that
// is back would be read a minute later than others.
func untilAnswered[T any](ctx context.Context, request func() (T, error)) (T, error) {
	delay := wait.Backoff{Duration: firstRetry, Factor: 2, Jitter: 0.5, Steps: 10, Cap: lastRetry}
	for {
		answer, err := request()
		if !unanswered(err) {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return answer, err
		case <-time.After(delay.Step()):
		}
	}
}

// unanswered reports whether err is that of a server which is not reached, is
// starting, or is overloaded. What it answers otherwise is for the informer: it lists
// again, for example, from a version that the server has.
func unanswered(err error) bool {
	var limit *budget.Exceeded
	if err == nil || errors.As(err, &limit) {
		return false
	}
	if apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) {
		return true
	}
	var network net.Error // as a *url.Error is
	return errors.Is(err, errClosedEarly) || errors.As(err, &network)
}
