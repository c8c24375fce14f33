// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package listwatch keeps informers current when an API server was away or its store was
// restored from a backup.
//
// It takes the list and watch functions of an informer; it gives ones by which the
// informer reads again within seconds once an API server answers, and lists everything
// again after a restore. An API server accepts a watch from a resourceVersion that is
// higher than its own, and sends nothing until its store has reached that version. So
// before a watch or a list continues from a version, one object is listed to compare
// versions: one request in several minutes for each kind. It writes nothing.
package listwatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/comity-mcs/comity/sync/model"
)

// Pause is the time within which all informers of one API server detect one restore.
const Pause = 2 * time.Minute

// versionTimeout bounds the list by which versions are compared.
const versionTimeout = 30 * time.Second

// Request lists or watches, whatever T is.
type Request[T any] = func(context.Context, metav1.ListOptions) (T, error)

// Checked is request, which lists or watches, unless the version of the store is lower than
// that of its options: then it calls restored, and returns an error that makes an informer
// list without a version next. list lists what is asked for; its error is returned unchanged,
// so that an informer asks with its last version again.
//
// An API server would accept such a watch, refuse one that streams a list first, and
// refuse a list only after some seconds, with the request to repeat it.
func Checked[T any](list toolscache.ListWithContextFunc, request Request[T], restored func(error)) Request[T] {
	return func(ctx context.Context, opts metav1.ListOptions) (none T, _ error) {
		found, err := check(ctx, opts, list)
		if err != nil {
			return none, err
		}
		if found != nil {
			restored(found)
			return none, apierrors.NewResourceExpired(found.Error())
		}
		return request(ctx, opts)
	}
}

// check returns what was found if the version of the store is lower than that of opts, and
// nil if it is not, opts has no version, or one of the versions is no number.
func check(ctx context.Context, opts metav1.ListOptions, list toolscache.ListWithContextFunc) (found, err error) {
	if opts.ResourceVersion == "" || opts.ResourceVersion == "0" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	// Without a version, the list has the version of the store.
	answer, err := list(ctx, metav1.ListOptions{LabelSelector: opts.LabelSelector, FieldSelector: opts.FieldSelector, Limit: 1})
	if err != nil {
		return nil, err
	}
	accessor, err := apimeta.ListAccessor(answer)
	if err != nil {
		return nil, err
	}
	if is := accessor.GetResourceVersion(); model.IsOlderVersion(is, opts.ResourceVersion) {
		return fmt.Errorf("the API server is at resourceVersion %s and was at %s before: its store was restored from a backup", is, opts.ResourceVersion), nil
	}
	return nil, nil
}

// NewInformer is a cache.Options.NewInformer whose informers ask an API server that does not
// answer again every few seconds, detect a restore, and log both. Those of custom resources,
// which have no protobuf, use PlainLists.
func NewInformer(log logr.Logger) func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer {
	return func(source toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		from := toolscache.ToListerWatcherWithContext(source)
		log := log.WithValues("kind", fmt.Sprintf("%T", object))
		restored := func(found error) { log.Info("all objects of a kind are listed again", "reason", found.Error()) }
		away := func(err error) { log.Error(err, "the API server does not answer; it is asked again every few seconds") }
		checked := &toolscache.ListWatch{
			ListWithContextFunc:  answered(Checked(from.ListWithContext, from.ListWithContext, restored), away),
			WatchFuncWithContext: answered(Checked(from.ListWithContext, from.WatchWithContext, restored), away),
		}
		var lists toolscache.ListerWatcher = PlainLists{checked}
		if _, protobuf := object.(runtime.ProtobufMarshaller); protobuf {
			lists = checked
		}
		return toolscache.NewSharedIndexInformer(lists, object, resync, indexers)
	}
}

// answered is request until the API server answers it; away is called if it does not at first.
func answered[T any](request Request[T], away func(error)) Request[T] {
	return func(ctx context.Context, opts metav1.ListOptions) (T, error) {
		tried := false
		return UntilAnswered(ctx, Unanswered, func() (T, error) {
			answer, err := request(ctx, opts)
			if !tried && Unanswered(err) && ctx.Err() == nil {
				away(err)
			}
			tried = true
			return answer, err
		})
	}
}

// PlainLists has an informer list, where client-go would stream a list as the first events of a
// watch. Each event of JSON is scanned four times until it is decoded, each list once.
type PlainLists struct{ *toolscache.ListWatch }

// ListWithContext implements toolscache.ListerWithContext. The first list of an informer asks
// for version 0, which is whatever the server has cached. If that is older than the cache of
// another server, objects that were just read would seem to be deleted.
func (l PlainLists) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if opts.ResourceVersion == "0" { // with it, a server ignores the limit
		opts.ResourceVersion, opts.ResourceVersionMatch, opts.Limit = "", "", 0
	}
	return l.ListWatch.ListWithContext(ctx, opts)
}

// IsWatchListSemanticsUnSupported is what client-go asks.
func (PlainLists) IsWatchListSemanticsUnSupported() bool { return true }

// How long after the first and after any later failure an API server that does not
// answer is asked again, plus up to half of that.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 8 * time.Second
)

// UntilAnswered makes request until its error is none that unanswered is true of, or ctx
// ends, and returns what came last. A reflector would wait up to a minute between two
// attempts, and forgets that only two minutes after the last failure: once an API server
// is back, some kinds would be read a minute later than others.
func UntilAnswered[T any](ctx context.Context, unanswered func(error) bool, request func() (T, error)) (answer T, err error) {
	delay := wait.Backoff{Duration: firstRetry, Factor: 2, Jitter: 0.5, Steps: 10, Cap: lastRetry}.DelayFunc()
	_ = delay.Until(ctx, true, true, func(context.Context) (bool, error) {
		answer, err = request()
		return !unanswered(err), nil
	}) // its only error is that ctx has ended
	return answer, err
}

// Unanswered reports whether err is that of an API server which is not reached, is
// starting, is overloaded, or ends in the middle of its answer. What it answers otherwise is for the reflector: it lists
// again, for example, from a version that the server has.
func Unanswered(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, new(net.Error)) // as a *url.Error is
}
