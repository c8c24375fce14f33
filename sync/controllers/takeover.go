// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/model"
)

// takeovers remembers what decide.ImportView needs of the past of this process. A
// process that restarts knows nothing of it: a hold that ends by itself starts again,
// and a member that was not read when an import formed has to be confirmed.
type takeovers struct {
	mu sync.Mutex
	// until is when the hold of a takeover by an export ends, by import. Only holds that
	// end by themselves are in it.
	until map[types.NamespacedName]map[decide.ExportID]time.Time
	// formedWithout are the members that had never been read when the import was made,
	// nor since.
	formedWithout map[types.NamespacedName][]model.ClusterID
	settling      map[types.NamespacedName]decide.Settling
	// last is the ServiceImport that was read last. If somebody deletes it, which export
	// decided the import is still known.
	last map[types.NamespacedName]*mcsv1beta1.ServiceImport
	// joined is the export of each cluster that was announced to serve, by import, as
	// long as its ServiceImport does not list it. Limiter bounds the events: a cluster
	// that joins may export thousands of Services.
	joined  map[types.NamespacedName]map[model.ClusterID]types.UID
	limiter flowcontrol.PassiveRateLimiter
}

// Bounds of the events on exports that join.
const (
	joinedPerSecond = 5
	joinedAtOnce    = 50
)

func newTakeovers() *takeovers {
	return &takeovers{
		until: map[types.NamespacedName]map[decide.ExportID]time.Time{}, formedWithout: map[types.NamespacedName][]model.ClusterID{},
		settling: map[types.NamespacedName]decide.Settling{}, last: map[types.NamespacedName]*mcsv1beta1.ServiceImport{}, joined: map[types.NamespacedName]map[model.ClusterID]types.UID{},
		limiter: flowcontrol.NewTokenBucketPassiveRateLimiter(joinedPerSecond, joinedAtOnce),
	}
}

// read adds what is remembered of key to a view with the import as it is now.
func (t *takeovers) read(key types.NamespacedName, v *decide.ImportView) {
	t.mu.Lock()
	defer t.mu.Unlock()
	imported := v.Current.Import
	if imported == nil {
		v.Deleted, imported = t.last[key], t.last[key]
	} else if model.IsManaged(imported) {
		t.last[key] = imported
	}
	t.settling[key] = t.settling[key].After(imported, v.Now)
	v.SettlesAt = t.settling[key].At
	v.TakeoverUntil, v.FormedWithout = t.until[key], t.formedWithout[key]
}

// forget drops what is remembered of a key that has no import and needs none.
func (t *takeovers) forget(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.until, key)
	delete(t.formedWithout, key)
	delete(t.joined, key)
	t.forgetImport(key)
}

func (t *takeovers) forgetImport(key types.NamespacedName) {
	delete(t.settling, key)
	delete(t.last, key)
}

// unannounced returns those of joined of which no event is written yet: of an import
// that cannot be written they join with every decision. Stored are the exports that the
// ServiceImport lists.
func (t *takeovers) unannounced(key types.NamespacedName, stored []model.SourceExport, joined []decide.Joined) (out []decide.Joined) {
	t.mu.Lock()
	defer t.mu.Unlock()
	said := t.joined[key]
	for _, s := range stored {
		delete(said, s.Cluster)
	}
	for _, e := range joined {
		if said[e.Cluster] == e.UID || !t.limiter.TryAccept() {
			continue
		}
		if said == nil {
			said = map[model.ClusterID]types.UID{}
		}
		said[e.Cluster] = e.UID
		out = append(out, e)
	}
	delete(t.joined, key)
	if len(said) > 0 {
		t.joined[key] = said
	}
	return out
}

// applied remembers what was decided, once it was applied.
func (t *takeovers) applied(key types.NamespacedName, d *decide.ImportDecision) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d.Plan.Desired == nil { // what is exported next is another import
		t.forgetImport(key)
	}
	delete(t.until, key)
	if len(d.TakeoverUntil) > 0 {
		t.until[key] = d.TakeoverUntil
	}
	delete(t.formedWithout, key)
	if len(d.FormedWithout) > 0 {
		t.formedWithout[key] = d.FormedWithout
	}
}
