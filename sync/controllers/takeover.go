// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

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
}

func newTakeovers() *takeovers {
	return &takeovers{
		until: map[types.NamespacedName]map[decide.ExportID]time.Time{}, formedWithout: map[types.NamespacedName][]model.ClusterID{},
		settling: map[types.NamespacedName]decide.Settling{},
	}
}

// read adds what is remembered of key to a view with the import as it is now.
func (t *takeovers) read(key types.NamespacedName, v *decide.ImportView) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settling[key] = t.settling[key].After(v.Current.Import, v.Now)
	v.SettlesAt = t.settling[key].At
	v.TakeoverUntil, v.FormedWithout = t.until[key], t.formedWithout[key]
}

// forget drops what is remembered of a key that has no import and needs none.
func (t *takeovers) forget(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.until, key)
	delete(t.formedWithout, key)
	delete(t.settling, key)
}

// applied remembers what was decided, once it was applied.
func (t *takeovers) applied(key types.NamespacedName, d *decide.ImportDecision) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.until, key)
	if len(d.TakeoverUntil) > 0 {
		t.until[key] = d.TakeoverUntil
	}
	delete(t.formedWithout, key)
	if len(d.FormedWithout) > 0 {
		t.formedWithout[key] = d.FormedWithout
	}
}
