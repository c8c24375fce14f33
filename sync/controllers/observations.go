// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
	"github.com/comity-mcs/comity/sync/plan"
)

// equalities compare findings as Kubernetes does, for which nil is the same as empty; times by
// instant, and scopes, which have no exported field, by their words.
var equalities = conversion.EqualitiesOrDie(
	func(a, b time.Time) bool { return a.Equal(b) },
	func(a, b model.Scope) bool { return a.String() == b.String() },
)

// Observations hold the findings of the publish and of the import controller for
// every key.
type Observations struct {
	// Changed notifies of keys whose Observation differs from before, and ImportChanged of those
	// of which the import controller found something else that is, or was, about other clusters.
	Changed, ImportChanged notify.Notifier

	self  model.ClusterID
	mu    sync.Mutex
	found map[types.NamespacedName]keyFindings
	// unsettled are those, usually few, of which an export is missing or waits for a
	// confirmation: they are counted for each Peer again and again.
	unsettled sets.Set[types.NamespacedName]
}

// keyFindings are those about one key; nil of a controller that found nothing.
type keyFindings struct {
	exported *decide.ExportFinding
	imported *decide.ImportFinding
}

// NewObservations returns Observations of nothing, in the cluster self.
func NewObservations(self model.ClusterID) *Observations {
	return &Observations{self: self, found: map[types.NamespacedName]keyFindings{}, unsettled: sets.New[types.NamespacedName]()}
}

// Get joins both findings. Without one of them it returns false, so that no
// condition is computed from half of the findings after a restart.
func (o *Observations) Get(key types.NamespacedName) (model.Observation, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := o.found[key]
	if found.imported == nil || found.imported.Exported && found.exported == nil {
		return model.Observation{}, false
	}
	seen, out := found.imported.Observation, ptr.Deref(found.exported, decide.ExportFinding{Publication: model.PublicationNone})
	seen.Publication, seen.Detail, seen.Scope, seen.WithdrawnAt = out.Publication, out.Detail, out.Scope, out.WithdrawnAt
	return seen, true
}

// OfImport is what the import controller found; empty as long as it found nothing.
func (o *Observations) OfImport(key types.NamespacedName) model.Observation {
	o.mu.Lock()
	defer o.mu.Unlock()
	return ptr.Deref(o.found[key].imported, decide.ImportFinding{}).Observation
}

// From are the keys of which a cluster was last found to be such a source.
func (o *Observations) From(cluster model.ClusterID, such func(model.Source) bool) []types.NamespacedName {
	o.mu.Lock()
	defer o.mu.Unlock()
	var keys []types.NamespacedName
	for key, found := range o.found {
		if in := found.imported; in != nil && slices.ContainsFunc(in.Sources, func(s model.Source) bool { return s.Cluster == cluster && such(s) }) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Publish stores what the publish controller found; nil forgets it.
func (o *Observations) Publish(key types.NamespacedName, found *decide.ExportFinding) {
	o.store(key, func(now *keyFindings) (changed bool) {
		changed = !equalities.DeepEqual(now.exported, found)
		now.exported = found
		return changed
	})
}

// Import stores what the import controller found, and returns what it found before; nil or
// an empty finding forgets it.
func (o *Observations) Import(key types.NamespacedName, found *decide.ImportFinding) (before decide.ImportFinding) {
	after := ptr.Deref(found, decide.ImportFinding{})
	if after.IsEmpty() {
		found = nil
	}
	changed := o.store(key, func(now *keyFindings) (changed bool) {
		before, changed = ptr.Deref(now.imported, decide.ImportFinding{}), !equalities.DeepEqual(now.imported, found)
		now.imported = found
		if o.unsettled.Delete(key); len(after.Takeovers) > 0 || slices.ContainsFunc(after.Sources, isMissing) {
			o.unsettled.Insert(key)
		}
		return changed
	})
	isOther := func(cluster model.ClusterID) bool { return cluster != "" && cluster != o.self }
	if changed && (before.Concerns(isOther) || after.Concerns(isOther)) {
		o.ImportChanged.Key(key)
	}
	return before
}

func isMissing(s model.Source) bool { return s.State == model.SourceMissing }

// store has put replace what was found of key, and notifies if that changed it.
func (o *Observations) store(key types.NamespacedName, put func(*keyFindings) (changed bool)) (changed bool) {
	o.mu.Lock()
	now := o.found[key]
	changed = put(&now)
	if o.found[key] = now; now == (keyFindings{}) {
		delete(o.found, key)
	}
	o.mu.Unlock()
	if changed {
		o.Changed.Key(key)
	}
	return changed
}

// Count gives, in gauges, the sources of imports by row of the import table.
func (c *Controllers) Count(gauge func(name, help string, labels ...string) *prometheus.GaugeVec) {
	sources := gauge("comity_import_sources", "Exports that imports consist of, by cluster and by the row of the import table that applies.", "peer", "state")
	frozen := gauge("comity_imports_frozen", "Imports of which no property changes, by the cluster that decides them.", "peer")
	withdrawn := gauge("comity_withdrawn_endpoints", "Endpoints that are not ready here because their cluster is drained, or is lost and they do not answer, or because another tier serves, by cluster.", "peer")
	waiting := gauge("comity_takeovers_held", "Exports that would change an import and wait for a confirmation, by cluster.", "peer")
	o := c.observations
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, of := range o.found {
		found := ptr.Deref(of.imported, decide.ImportFinding{})
		for _, s := range found.Sources {
			sources.WithLabelValues(string(s.Cluster), string(s.State)).Inc()
			withdrawn.WithLabelValues(string(s.Cluster)).Add(float64(s.Unready))
		}
		if found.Freeze != nil {
			frozen.WithLabelValues(string(found.Freeze.By.Cluster)).Inc()
		}
		for _, t := range found.Takeovers {
			waiting.WithLabelValues(string(t.By.Cluster)).Inc()
		}
	}
}

// Controllers is what other parts of the agent may read of the running controllers.
type Controllers struct{ *base }

// Observe returns what was last found for a namespace/name; false if it was not
// reconciled completely since this process became the leader.
func (c *Controllers) Observe(key types.NamespacedName) (model.Observation, bool) {
	return c.observations.Get(key)
}

// Destinations are the clusters in the scope of the local export key, sorted,
// without this one (see decide.Destinations), and what each reports of importing it; false as long as it is
// not known where the export goes.
func (c *Controllers) Destinations(key types.NamespacedName) ([]model.Report, bool) {
	seen, ok := c.Observe(key)
	if !ok {
		return nil, false
	}
	export, err := get[mcsv1beta1.ServiceExport](context.Background(), c.client, key) // a cache: it does not wait
	if err != nil || export == nil {
		return nil, false
	}
	return decide.Destinations(c.Self, seen, c.Peers.Members(), c.Peers.Reports(key), export.UID)
}

// Changed notifies when Observe may return something else.
func (c *Controllers) Changed() *notify.Notifier { return &c.observations.Changed }

// CaughtUp are closed once every export and every import was reconciled that stood at the start.
func (c *Controllers) CaughtUp() []<-chan struct{} {
	return []<-chan struct{}{c.publishQueue.CaughtUp(), c.importQueue.CaughtUp()}
}

// DestinationsChanged notifies when Destinations may return something else though
// Observe does not.
func (c *Controllers) DestinationsChanged() *notify.Notifier { return &c.reportsChanged }

// Counts are of what of a cluster is missing, or waits for a confirmation.
func (c *Controllers) Counts(cluster model.ClusterID) model.ImportCounts {
	var out model.ImportCounts
	count := func(n *int, first *types.NamespacedName, key types.NamespacedName) {
		if *n == 0 || model.CompareKeys(key, *first) < 0 {
			*first = key
		}
		*n++
	}
	o := c.observations
	o.mu.Lock()
	defer o.mu.Unlock()
	for key := range o.unsettled {
		found := o.found[key].imported
		for _, s := range found.Sources {
			if s.Cluster == cluster && isMissing(s) {
				count(&out.Missing, &out.FirstMissing, key)
			}
		}
		for _, t := range found.Takeovers {
			if t.By.Cluster == cluster {
				count(&out.Waiting, &out.FirstWaiting, key)
			}
		}
	}
	return out
}

// announceJoined writes an event on the ServiceImport about each export that it consists of
// from now on, too.
func (i *importController) announceJoined(imported *mcsv1beta1.ServiceImport, joined []model.SourceExport) {
	for _, e := range joined {
		if imported != nil {
			i.recorder.Eventf(imported, nil, corev1.EventTypeNormal, model.ReasonExportJoined, "Import",
				"cluster %s exports this Service, too, and its endpoints are used from now on (UID %s, created %s)",
				e.Cluster, e.UID, e.CreatedAt.UTC().Format(time.RFC3339))
		}
	}
}

// announce writes an event about each problem that was not there before and that no condition
// of a ServiceImport of Comity's can say: about what prevents the import, on the object of
// somebody else that is the cause; and about a source that is kept out, on the ServiceImport,
// also if there is none because no other source is left.
func (i *importController) announce(key types.NamespacedName, current plan.Current, before, now []model.Problem) {
	imported := current.Import
	isOwn := imported != nil && model.IsManaged(imported)
	if imported == nil {
		imported = &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	}
	for _, p := range now {
		if slices.ContainsFunc(before, func(b model.Problem) bool { return b.Reason == p.Reason && b.Message == p.Message }) {
			continue
		}
		var object runtime.Object = imported
		if !slices.Contains(keepsOut, p.Reason) {
			if object = decide.Obstacle(p.Reason, current); object == nil || isOwn {
				continue
			}
		}
		i.recorder.Eventf(object, nil, corev1.EventTypeWarning, p.Reason, "Import", "%s", model.Bound(p.Message, model.MaxEventNote))
	}
}

// keepsOut are the reasons of problems because of which nothing, or nothing new, is imported
// from a source, by what the administrators of this cluster said.
var keepsOut = []string{model.ReasonPolicyDenied, model.ReasonNotEvaluated, model.ReasonNamespaceUnknown, model.ReasonNamespaceNotAccepted}
