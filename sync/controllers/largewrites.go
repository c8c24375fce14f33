// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/compactslice"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// largePause is how many times as long as a write of a large slice took the next one for
// the same cluster waits: some 2 s after one of 400 kB if nothing else uses the processor,
// which is about how often the pacer of package members notifies of such a slice. It
// waits for maxLargePause at most: an API server that is slow for another reason must not
// keep the slices of an import from being written for minutes.
const (
	largePause    = 40
	maxLargePause = 10 * time.Second
)

// largeWrites makes the writes of large slices of other clusters outside of the
// reconcile of their import. The API server takes a quarter of a second for one of
// some hundred kilobytes, and meanwhile the endpoints of other clusters in the same
// import would wait.
//
// For each cluster there is one such write at a time, whatever the number of its
// imports, and then a pause, so that a cluster takes no more than one connection, the
// memory of one plan, and a fortieth of a processor. Imports wait their turn in order.
// While an import waits, or is written, nothing else is written of that cluster's slices
// in it. Then the import is reconciled again.
type largeWrites struct {
	self model.ClusterID
	// apply makes the writes, applied notes what it made.
	apply   func(context.Context, []plan.Action) ([]plan.Object, error)
	applied func(*plan.ImportInput, []plan.Action, []plan.Object)
	turns   turns

	mu sync.Mutex
	// failed are the errors of writes that were not yet returned.
	failed map[importSource]error
}

// importSource is one import, and one of the clusters that export to it.
type importSource struct {
	key    types.NamespacedName
	source model.ClusterID
}

func newLargeWrites(self model.ClusterID, apply func(context.Context, []plan.Action) ([]plan.Object, error),
	applied func(*plan.ImportInput, []plan.Action, []plan.Object),
) *largeWrites {
	return &largeWrites{self: self, apply: apply, applied: applied, failed: map[importSource]error{}}
}

// ready leaves out the actions on slices of clusters that have to wait, and what must
// not be done before these. It returns the errors of the writes that ended since the
// last call, too: the actions of those clusters are left out, as if they had failed now.
func (l *largeWrites) ready(key types.NamespacedName, actions []plan.Action) ([]plan.Action, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ended := l.ended(key)
	var failed []error
	now := l.without(actions, func(source model.ClusterID, of []plan.Action) bool {
		if err := ended[source]; err != nil {
			failed = append(failed, err)
			return true
		}
		holder, taken := l.turns.holder(source)
		if holder == key {
			return taken
		}
		return holder != (types.NamespacedName{}) && hasLarge(of) && l.turns.wait(source, key)
	})
	return now, errors.Join(failed...)
}

// begin begins the writes of large slices among the actions, unless they have to wait.
// It returns the actions that are to be made now.
func (l *largeWrites) begin(ctx context.Context, in *plan.ImportInput, actions []plan.Action) []plan.Action {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.without(actions, func(source model.ClusterID, of []plan.Action) bool {
		if !hasLarge(of) {
			return false
		}
		if at := (importSource{in.Key, source}); l.turns.take(source, in.Key) {
			planned := *in
			go l.write(ctx, at, &planned, of)
		}
		return true
	})
}

// without leaves out the actions on slices of other clusters for which left is true,
// and then what must not be done before these.
func (l *largeWrites) without(actions []plan.Action, left func(model.ClusterID, []plan.Action) bool) []plan.Action {
	waiting := map[model.ClusterID]bool{}
	for _, source := range l.sources(actions) {
		of := slices.DeleteFunc(slices.Clone(actions), func(a plan.Action) bool { return a.Source != source })
		if left(source, of) {
			waiting[source] = true
		}
	}
	return withoutSources(actions, waiting)
}

// sources are the other clusters whose slices the actions are on.
func (l *largeWrites) sources(actions []plan.Action) []model.ClusterID {
	var out []model.ClusterID
	for _, a := range actions {
		if a.Source != "" && a.Source != l.self && !slices.Contains(out, a.Source) {
			out = append(out, a.Source)
		}
	}
	return out
}

func hasLarge(actions []plan.Action) bool {
	return slices.ContainsFunc(actions, func(a plan.Action) bool { return bytesOf(a) >= compactslice.Large })
}

func (l *largeWrites) write(ctx context.Context, at importSource, planned *plan.ImportInput, actions []plan.Action) {
	begun := time.Now()
	objects, err := l.apply(ctx, actions)
	l.applied(planned, actions, objects)
	if err != nil {
		l.mu.Lock()
		l.failed[at] = err
		l.mu.Unlock()
	}
	time.AfterFunc(min(largePause*time.Since(begun), maxLargePause), func() {
		l.turns.end(at.source)
		l.turns.come.Key(at.key)
	})
}

// ended takes the errors of the writes to an import that ended, by cluster. It needs mu.
func (l *largeWrites) ended(key types.NamespacedName) map[model.ClusterID]error {
	errs := map[model.ClusterID]error{}
	for at, err := range l.failed {
		if at.key == key {
			errs[at.source] = err
			delete(l.failed, at)
		}
	}
	return errs
}

// forget drops the errors of an import that is not written any more.
func (l *largeWrites) forget(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended(key)
}
