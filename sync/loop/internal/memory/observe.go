// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// Published is what the publish reconciler found out about a key.
type Published struct {
	Publication model.Publication
	Detail      string
	Scope       model.Scope
}

// Imported is what the import reconciler found out about a key.
type Imported struct {
	// Exported is true if there is a local ServiceExport, so that the publish
	// reconciler will have something to say too.
	Exported bool
	// Stands is true if the import exists here, be it only because a cluster
	// that contributed was not read yet.
	Stands    bool
	Resolved  *model.Import
	Unsynced  []model.ClusterID
	Conflicts []model.Conflict
	Problems  []model.Problem
	Sources   []model.Source
	Held      []model.Hold
}

// nothing reports whether there is nothing to say of a key.
func (i *Imported) nothing() bool {
	return !i.Exported && !i.Stands && i.Resolved == nil && len(i.Problems) == 0
}

// equalities compare what was found: as Kubernetes does, and times by instant.
var equalities = func() conversion.Equalities {
	e := equality.Semantic.Copy()
	if err := e.AddFunc(func(a, b time.Time) bool { return a.Equal(b) }); err != nil {
		panic(err) // the function has the wrong shape, whatever it is given
	}
	return e
}()

// Observations hold both halves of every key's Observation and tell of changes
// without ever making a reconciler wait for a reader.
type Observations struct {
	mu        sync.Mutex
	published map[types.NamespacedName]Published
	imported  map[types.NamespacedName]Imported
	readers   []*reader
	running   context.Context // nil until Start
	serving   sync.WaitGroup
}

// reader is one channel of changes.
type reader struct {
	out     chan event.GenericEvent
	wake    chan struct{}
	changed map[types.NamespacedName]struct{} // under Observations.mu
}

// NewObservations returns Observations of nothing.
func NewObservations() *Observations {
	return &Observations{published: map[types.NamespacedName]Published{}, imported: map[types.NamespacedName]Imported{}}
}

// Get joins the halves. With one still to come it gives none, so that a
// condition never shows half the truth after a restart.
func (o *Observations) Get(key types.NamespacedName) (model.Observation, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	in, ok := o.imported[key]
	if !ok {
		return model.Observation{}, false
	}
	out, known := o.published[key]
	if !known {
		if in.Exported {
			return model.Observation{}, false
		}
		out.Publication = model.PublicationNone
	}
	return model.Observation{
		Publication: out.Publication, Detail: out.Detail, Scope: out.Scope,
		Import: in.Resolved, Unsynced: in.Unsynced, Conflicts: in.Conflicts, Problems: in.Problems,
		Sources: in.Sources, Held: in.Held,
	}, true
}

// From are the keys to which a cluster was last found to contribute.
func (o *Observations) From(cluster model.ClusterID) []types.NamespacedName {
	o.mu.Lock()
	defer o.mu.Unlock()
	var keys []types.NamespacedName
	for key, in := range o.imported {
		if slices.ContainsFunc(in.Sources, func(s model.Source) bool { return s.Cluster == cluster }) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Publish stores the publish half; nil forgets it.
func (o *Observations) Publish(key types.NamespacedName, now *Published) {
	store(o, o.published, key, now, func(a, b Published) bool {
		// A Scope has no exported field, and different ones have different words.
		return a.Publication == b.Publication && a.Detail == b.Detail && a.Scope.String() == b.Scope.String()
	})
}

// Import stores the import half; nil, or nothing to say, forgets it.
func (o *Observations) Import(key types.NamespacedName, now *Imported) {
	if now != nil && now.nothing() {
		now = nil
	}
	store(o, o.imported, key, now, func(a, b Imported) bool { return equalities.DeepEqual(a, b) })
}

func store[T any](o *Observations, all map[types.NamespacedName]T, key types.NamespacedName, now *T, same func(a, b T) bool) {
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
	for _, r := range o.readers {
		r.changed[key] = struct{}{}
		kick(r.wake)
	}
}

// Changes is a new channel that tells of every key that is known now or changes
// later. Changes of one key are coalesced until read; nothing is lost.
func (o *Observations) Changes() <-chan event.GenericEvent {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := &reader{out: make(chan event.GenericEvent), wake: make(chan struct{}, 1), changed: map[types.NamespacedName]struct{}{}}
	for key := range o.published {
		r.changed[key] = struct{}{}
	}
	for key := range o.imported {
		r.changed[key] = struct{}{}
	}
	kick(r.wake)
	o.readers = append(o.readers, r)
	if o.running != nil && o.running.Err() == nil {
		o.serving.Go(func() { o.serve(o.running, r) })
	}
	return r.out
}

// NeedLeaderElection is true: only the leader observes anything.
func (o *Observations) NeedLeaderElection() bool { return true }

// Start hands out changes until ctx ends.
func (o *Observations) Start(ctx context.Context) error {
	o.mu.Lock()
	o.running = ctx
	for _, r := range o.readers {
		o.serving.Go(func() { o.serve(ctx, r) })
	}
	o.mu.Unlock()
	<-ctx.Done()
	o.serving.Wait()
	return nil
}

func (o *Observations) serve(ctx context.Context, r *reader) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		for _, key := range o.take(r) {
			export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
			select {
			case <-ctx.Done():
				return
			case r.out <- event.GenericEvent{Object: export}:
			}
		}
	}
}

func (o *Observations) take(r *reader) []types.NamespacedName {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make([]types.NamespacedName, 0, len(r.changed))
	for key := range r.changed {
		out = append(out, key)
	}
	clear(r.changed)
	return out
}
