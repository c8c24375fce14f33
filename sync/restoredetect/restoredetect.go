// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package restoredetect notices that a cluster's store was restored from the past.
//
// A watch goes on from the resourceVersion that its reader came to. After a
// restore that version lies in the future. The API server accepts the watch all
// the same and sends nothing until the store has come to the version once more,
// which takes as long as the backup was old: neither what is different now nor
// what changes meanwhile is heard of, and the reader keeps what never was. So
// before a watch goes on, the store is asked for its version. If that is lower,
// the watch fails as one from a forgotten version does, and the informer lists
// anew.
//
// This asks one list of one object for each watch that goes on from a version,
// which is one in several minutes for each kind.
package restoredetect

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// askTimeout bounds the question for the version.
const askTimeout = 30 * time.Second

// Found is what was found: a store that was at resourceVersion Was is at Is.
type Found struct{ Was, Is string }

// Error says what happened, for the one who wonders why all is read anew.
func (f *Found) Error() string {
	return fmt.Sprintf("the API server is at resourceVersion %s and was at %s before: its store was restored from a backup", f.Is, f.Was)
}

// Checked is watch, unless the store is not yet where it would go on: then told
// is called, and the error makes an informer forget its version and list anew.
// list reads what is to be watched; its error is returned as it is.
func Checked(list toolscache.ListWithContextFunc, watch toolscache.WatchFuncWithContext, told func(*Found)) toolscache.WatchFuncWithContext {
	return func(ctx context.Context, opts metav1.ListOptions) (apiwatch.Interface, error) {
		found, err := check(ctx, opts, list)
		if err != nil {
			return nil, err
		}
		if found != nil {
			told(found)
			return nil, apierrors.NewResourceExpired(found.Error())
		}
		return watch(ctx, opts)
	}
}

// CheckedList is list, and calls told as well if list is refused because the
// store is not yet at the version of its options. An informer whose watch failed
// for another reason, such as an API server that has just started, lists from the
// version it came to, is refused, and lists without a version next: it follows
// the restored store, but no watch ever finds that it was restored.
func CheckedList(list toolscache.ListWithContextFunc, told func(*Found)) toolscache.ListWithContextFunc {
	return func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		answer, err := list(ctx, opts)
		if !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
			return answer, err
		}
		if found, problem := check(ctx, opts, list); problem == nil && found != nil {
			told(found)
		}
		return answer, err
	}
}

// check returns the Found of a store that is not yet where a watch with opts
// would go on, and nil if there is nothing to say: opts names no version, or
// versions cannot be compared.
func check(ctx context.Context, opts metav1.ListOptions, list toolscache.ListWithContextFunc) (*Found, error) {
	streamed := opts.SendInitialEvents != nil && *opts.SendInitialEvents // refused by the server itself if in the future
	if opts.ResourceVersion == "" || opts.ResourceVersion == "0" || streamed {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	// Without a version, the answer is as new as the store.
	answer, err := list(ctx, metav1.ListOptions{LabelSelector: opts.LabelSelector, FieldSelector: opts.FieldSelector, Limit: 1})
	if err != nil {
		return nil, err
	}
	accessor, err := apimeta.ListAccessor(answer)
	if err != nil {
		return nil, err
	}
	is := accessor.GetResourceVersion()
	if order, err := resourceversion.CompareResourceVersion(is, opts.ResourceVersion); err != nil || order >= 0 {
		return nil, nil // versions that are no numbers say nothing
	}
	return &Found{Was: opts.ResourceVersion, Is: is}, nil
}

// NewInformer makes the informers of a cache that are not led astray by a
// restore, and log one. It is a cache.Options.NewInformer.
func NewInformer(log logr.Logger) func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer {
	return func(source toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		from := toolscache.ToListerWatcherWithContext(source)
		told := func(found *Found) {
			log.Info("everything of a kind is read anew", "kind", fmt.Sprintf("%T", object), "reason", found.Error())
		}
		checked := &toolscache.ListWatch{
			ListWithContextFunc:  CheckedList(from.ListWithContext, told),
			WatchFuncWithContext: Checked(from.ListWithContext, from.WatchWithContext, told),
		}
		return toolscache.NewSharedIndexInformer(checked, object, resync, indexers)
	}
}
