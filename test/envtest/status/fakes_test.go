// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
)

// fakes stand for the sync loop and for policy.
type fakes struct {
	mu       sync.Mutex
	seen     map[types.NamespacedName]model.Observation
	verdicts map[types.NamespacedName]decision.Verdict
	changed  chan event.GenericEvent
	recheck  chan event.GenericEvent
}

func newFakes() *fakes {
	return &fakes{
		seen:     map[types.NamespacedName]model.Observation{},
		verdicts: map[types.NamespacedName]decision.Verdict{},
		recheck:  make(chan event.GenericEvent, 10),
	}
}

// reset gives a fresh channel of changes, for a controller of its own.
func (f *fakes) reset() <-chan event.GenericEvent {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changed = make(chan event.GenericEvent, 10)
	return f.changed
}

func (f *fakes) Observe(key types.NamespacedName) (model.Observation, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen, ok := f.seen[key]
	return seen, ok
}

func (f *fakes) Admit(_ context.Context, export *mcsv1beta1.ServiceExport) decision.Verdict {
	f.mu.Lock()
	defer f.mu.Unlock()
	if verdict, ok := f.verdicts[types.NamespacedName{Namespace: export.Namespace, Name: export.Name}]; ok {
		return verdict
	}
	return decision.Verdict{Outcome: decision.Allowed, Digest: "d"}
}

// observe changes what the loop found, and tells of it.
func (f *fakes) observe(key types.NamespacedName, seen model.Observation) {
	f.mu.Lock()
	f.seen[key] = seen
	changed := f.changed
	f.mu.Unlock()
	object := &mcsv1beta1.ServiceExport{}
	object.Namespace, object.Name = key.Namespace, key.Name
	changed <- event.GenericEvent{Object: object}
}

// decide changes what policy says, without telling anybody.
func (f *fakes) decide(key types.NamespacedName, verdict decision.Verdict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	verdicts := maps.Clone(f.verdicts)
	verdicts[key] = verdict
	f.verdicts = verdicts
}

// published is an export that stands in the exchange, with these conflicts.
func published(conflicts ...model.Conflict) model.Observation {
	return model.Observation{
		Publication: model.Published,
		Scope:       model.ScopeAll(),
		Import:      &model.Import{Constituents: []model.Constituent{{Cluster: "a"}, {Cluster: "b"}}},
		Conflicts:   conflicts,
	}
}
