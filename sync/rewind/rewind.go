// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package rewind notices that a cluster's store was restored from the past.
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
package rewind

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
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// askTimeout bounds the question for the version.
const askTimeout = 30 * time.Second

// Found is what Check found: a store that was at resourceVersion Was is at Is.
type Found struct{ Was, Is string }

// Error says what happened, for the one who wonders why all is read anew.
func (f *Found) Error() string {
	return fmt.Sprintf("the API server is at resourceVersion %s and was at %s before: its store was restored from a backup", f.Is, f.Was)
}

// Check returns the Found of a store that is not yet where a watch with opts
// would go on, and nil if there is nothing to say: opts names no version, or
// versions cannot be compared. list reads what is to be watched; its error is
// returned as it is.
func Check(ctx context.Context, opts metav1.ListOptions, list toolscache.ListWithContextFunc) (*Found, error) {
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

// Expired is the error upon which an informer forgets its version.
func (f *Found) Expired() error { return apierrors.NewResourceExpired(f.Error()) }

// NewInformer makes the informers of a cache that are not led astray by a
// restore, and log one. It is a cache.Options.NewInformer.
func NewInformer(log logr.Logger) func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer {
	return func(source toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		from := toolscache.ToListerWatcherWithContext(source)
		checked := &toolscache.ListWatch{
			ListWithContextFunc: from.ListWithContext,
			WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				found, err := Check(ctx, opts, from.ListWithContext)
				if err != nil {
					return nil, err
				}
				if found != nil {
					log.Info("everything of a kind is read anew", "kind", fmt.Sprintf("%T", object), "reason", found.Error())
					return nil, found.Expired()
				}
				return from.WatchWithContext(ctx, opts)
			},
		}
		return toolscache.NewSharedIndexInformer(checked, object, resync, indexers)
	}
}
