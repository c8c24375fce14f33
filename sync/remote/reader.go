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

	"github.com/comity-mcs/comity/sync/remote/budget"
	"github.com/comity-mcs/comity/sync/restoredetect"
)

// request is one for a list or a watch. untilAnswered and the informer retry; retries of
// the request would only delay the report of the failure.
func (f *feed) request(opts *metav1.ListOptions) *rest.Request {
	f.limit(opts)
	return f.client.Get().Namespace(f.namespace).Resource(f.resource).VersionedParams(opts, metav1.ParameterCodec).MaxRetries(1)
}

// maxLists is how many lists are read of one peer at the same time, besides that of its Lease:
// a page takes several times its size until it is decoded.
const maxLists = 2

// get makes one request for a list.
func (f *feed) get(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if f.resource != "leases" {
		select {
		case f.connection.lists <- struct{}{}:
			defer func() { <-f.connection.lists }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	into := f.newList()
	return into, f.request(&opts).Do(f.context(ctx)).Into(into)
}

// openWatch makes one request for a watch.
func (f *feed) openWatch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch, opts.AllowWatchBookmarks = true, true
	m := &meter{limit: f.connection.opts.Limits.EventBytes, what: "one event", exceeded: &f.exceeded}
	w, err := f.request(&opts).Watch(context.WithValue(f.context(ctx), meterKey{}, m))
	if err != nil {
		return nil, err
	}
	if reflect.TypeOf(w) == emptyWatch {
		return nil, errClosedEarly
	}
	return f.budgeted(ctx, w, m), nil
}

func (f *feed) restored(found *restoredetect.Found) {
	f.connection.opts.Hooks.Restored(f.connection, found)
}

// page reads one page of a list for the informer, and counts what it has.
func (f *feed) page(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list := restoredetect.CheckedList(f.get, f.restored)
	into, err := untilAnswered(ctx, func() (runtime.Object, error) {
		into, err := list(ctx, opts)
		// Success is only noted by the watch: where lists are allowed and
		// watches are not, the state must not flap.
		if err != nil {
			f.result(ctx, err)
		}
		return into, err
	})
	if err != nil {
		return nil, err
	}
	if err := f.count(into, opts.Continue != ""); err != nil {
		f.result(ctx, err)
		return nil, err
	}
	if f.confirmed {
		if err := f.connection.confirmMember(ctx); err != nil {
			return nil, err // the feed of MemberRecords reports why
		}
	}
	return into, nil
}

// watch watches for the informer, unless the feed is beyond its limits.
func (f *feed) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if over := f.exceeded.Load(); over != nil { // a list shows whether that has changed
		f.result(ctx, over)
		return nil, over
	}
	open := restoredetect.CheckedWatch(f.get, f.openWatch, f.restored)
	return untilAnswered(ctx, func() (watch.Interface, error) {
		w, err := open(ctx, opts)
		f.result(ctx, err)
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
