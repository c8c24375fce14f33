// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
)

// fakes stand for the sync loop and for policy.
type fakes struct {
	mu       sync.Mutex
	seen     map[types.NamespacedName]model.Observation
	verdicts map[types.NamespacedName]decision.Verdict
	reports  map[types.NamespacedName][]model.Report
	changed  notify.Notifier // observations
	reported notify.Notifier // destinations
	policies notify.Notifier
	// ahead is how much later it is in this world; frozen, if set, is the time
	// at which it stands still.
	ahead  time.Duration
	frozen time.Time
}

func newFakes() *fakes {
	return &fakes{
		seen:     map[types.NamespacedName]model.Observation{},
		verdicts: map[types.NamespacedName]decision.Verdict{},
		reports:  map[types.NamespacedName][]model.Report{},
	}
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

func (f *fakes) Changed() *notify.Notifier { return &f.changed }

func (f *fakes) DestinationsChanged() *notify.Notifier { return &f.reported }
func (f *fakes) CaughtUp() []<-chan struct{}           { return nil }

func (f *fakes) Destinations(key types.NamespacedName) ([]model.Report, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list, ok := f.reports[key]
	return list, ok
}

// report changes what clusters in scope say, and tells of it.
func (f *fakes) report(key types.NamespacedName, list ...model.Report) {
	f.mu.Lock()
	f.reports[key] = list
	f.mu.Unlock()
	f.reported.Key(key)
}

// forget is a restart: nobody has reported anything.
func (f *fakes) forget(key types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.reports, key)
	delete(f.seen, key)
}

func (f *fakes) now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.frozen.IsZero() {
		return f.frozen
	}
	return time.Now().Add(f.ahead)
}

// pass lets time pass.
func (f *fakes) pass(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen.IsZero() {
		f.ahead += d
	} else {
		f.frozen = f.frozen.Add(d)
	}
}

// freeze stops the clock, and thaw lets it run again.
func (f *fakes) freeze() {
	now := f.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frozen = now
}

func (f *fakes) thaw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.frozen.IsZero() {
		f.ahead = max(0, time.Until(f.frozen))
		f.frozen = time.Time{}
	}
}

// observe changes what the loop found, and tells of it.
func (f *fakes) observe(key types.NamespacedName, seen model.Observation) {
	f.mu.Lock()
	f.seen[key] = seen
	f.mu.Unlock()
	f.changed.Key(key)
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
		Sources: []model.Source{
			{Cluster: "a", State: model.SourcePublished, Liveness: model.Liveness{State: model.Connected}},
			{Cluster: "b", State: model.SourcePublished, Liveness: model.Liveness{State: model.Connected}},
		},
		Conflicts: conflicts,
	}
}
