// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// published is what the publish reconciler found out about a key.
type published struct {
	publication model.Publication
	detail      string
	scope       model.Scope
}

// imported is what the import reconciler found out about a key.
type imported struct {
	// exported is true if there is a local ServiceExport, so that the publish
	// reconciler will have something to say too.
	exported bool
	// stands is true if the import exists here, be it only because a cluster
	// that contributed was not read yet.
	stands    bool
	resolved  *model.Import
	unread    []model.ClusterID
	conflicts []model.Conflict
	problems  []model.Problem
}

// observations hold both halves of every key's Observation and tell of changes
// without ever making a reconciler wait for the reader.
type observations struct {
	out chan event.GenericEvent

	mu        sync.Mutex
	published map[types.NamespacedName]published
	imported  map[types.NamespacedName]imported
	changed   map[types.NamespacedName]struct{}
	wake      chan struct{}
}

func newObservations() *observations {
	return &observations{
		out:       make(chan event.GenericEvent),
		published: map[types.NamespacedName]published{},
		imported:  map[types.NamespacedName]imported{},
		changed:   map[types.NamespacedName]struct{}{},
		wake:      make(chan struct{}, 1),
	}
}

// get joins the halves. With one still to come it gives none, so that a
// condition never shows half the truth after a restart.
func (o *observations) get(key types.NamespacedName) (model.Observation, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	in, ok := o.imported[key]
	if !ok {
		return model.Observation{}, false
	}
	out, known := o.published[key]
	if !known {
		if in.exported {
			return model.Observation{}, false
		}
		out.publication = model.PublicationNone
	}
	return model.Observation{
		Publication: out.publication, Detail: out.detail, Scope: out.scope,
		Import: in.resolved, Unread: in.unread, Conflicts: in.conflicts, Problems: in.problems,
	}, true
}

// publish stores the publish half; nil forgets it.
func (o *observations) publish(key types.NamespacedName, now *published) {
	store(o, o.published, key, now)
}

// importing stores the import half; nil forgets it.
func (o *observations) importing(key types.NamespacedName, now *imported) {
	store(o, o.imported, key, now)
}

func store[T any](o *observations, all map[types.NamespacedName]T, key types.NamespacedName, now *T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, known := all[key]
	switch {
	case now == nil && !known, now != nil && known && same(before, *now):
		return
	case now == nil:
		delete(all, key)
	default:
		all[key] = *now
	}
	o.changed[key] = struct{}{}
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// same compares halves; a Scope has no exported field, so it is compared by its
// words, which are different for different scopes.
func same[T any](a, b T) bool {
	switch x := any(a).(type) {
	case published:
		y := any(b).(published)
		return x.publication == y.publication && x.detail == y.detail && x.scope.String() == y.scope.String()
	case imported:
		y := any(b).(imported)
		return x.exported == y.exported && x.stands == y.stands && equality.Semantic.DeepEqual(x.resolved, y.resolved) &&
			equality.Semantic.DeepEqual(x.unread, y.unread) && equality.Semantic.DeepEqual(x.conflicts, y.conflicts) &&
			equality.Semantic.DeepEqual(x.problems, y.problems)
	}
	return false
}

// NeedLeaderElection is true: only the leader observes anything.
func (o *observations) NeedLeaderElection() bool { return true }

// Start hands out changes until ctx ends.
func (o *observations) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-o.wake:
		}
		for _, key := range o.take() {
			export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
			select {
			case <-ctx.Done():
				return nil
			case o.out <- event.GenericEvent{Object: export}:
			}
		}
	}
}

func (o *observations) take() []types.NamespacedName {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make([]types.NamespacedName, 0, len(o.changed))
	for key := range o.changed {
		out = append(out, key)
	}
	clear(o.changed)
	return out
}
