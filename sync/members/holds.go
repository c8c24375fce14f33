// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/members/deletionguard"
	"github.com/comity-mcs/comity/sync/model"
)

// When the event about missing exports is written: none was added for settleTime, or
// for maxSettleTime more and more were. Further ones are reported after repeatTime.
const (
	settleTime    = 2 * time.Second
	maxSettleTime = 10 * time.Second
	repeatTime    = time.Minute
)

// holds are the exports of one peer, which states its withdrawals, that are missing
// although it did not withdraw them. A hold ends when the export is published again,
// withdrawn, or confirmed, and never by time. Unlike deletionguard, which decides by
// how many exports disappear at once, it only remembers what the importer finds
// missing. All methods may be called from any goroutine.
type holds struct {
	mu sync.Mutex
	// since is when this process first found each of them missing, in whole seconds.
	// What is confirmed stays here until it is removed, so that it is not put on hold again.
	since     map[types.NamespacedName]time.Time
	confirmed time.Time // as given to confirm

	fresh       map[types.NamespacedName]struct{} // those that were not reported
	first, last time.Time                         // when the first and last of them was added
	reported    time.Time                         // when missing exports were last reported
}

func newHolds() *holds {
	return &holds{since: map[types.NamespacedName]time.Time{}, fresh: map[types.NamespacedName]struct{}{}}
}

// set records whether the export of key is missing.
func (h *holds) set(key types.NamespacedName, missing bool, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !missing {
		delete(h.since, key)
		delete(h.fresh, key)
		return
	}
	if _, known := h.since[key]; known {
		return
	}
	h.since[key] = now.UTC().Truncate(time.Second)
	if len(h.fresh) == 0 {
		h.first = now
	}
	h.fresh[key], h.last = struct{}{}, now
}

// held returns since when the export of key is missing, and false if it is not, or
// if an administrator has confirmed it.
func (h *holds) held(key types.NamespacedName) (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	since, missing := h.since[key]
	return since, missing && since.After(h.confirmed)
}

// keys lists what is held, in no order.
func (h *holds) keys() []types.NamespacedName {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.between(h.confirmed, time.Time{})
}

// between lists what is missing since after the first time and, unless the second is
// zero, up to the second. It needs mu.
func (h *holds) between(after, upTo time.Time) (out []types.NamespacedName) {
	for key, since := range h.since {
		if since.After(after) && (upTo.IsZero() || !since.After(upTo)) {
			out = append(out, key)
		}
	}
	return out
}

// confirm ends the holds of what is missing since before then, or since then, and
// lists them. The zero time confirms nothing.
func (h *holds) confirm(then time.Time) []types.NamespacedName {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.confirmed
	h.confirmed = then
	if !then.After(before) {
		return nil
	}
	return h.between(before, then)
}

// unreported returns how many exports are held, and the first of them by namespace and
// name, if some of them were not reported and it is time to do so.
func (h *holds) unreported(now time.Time) (count int, first types.NamespacedName, report bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case len(h.fresh) == 0,
		now.Sub(h.last) < settleTime && now.Sub(h.first) < maxSettleTime,
		!h.reported.IsZero() && now.Sub(h.reported) < repeatTime:
		return 0, first, false
	}
	held := h.between(h.confirmed, time.Time{})
	clear(h.fresh)
	if len(held) == 0 { // they are confirmed
		return 0, first, false
	}
	h.reported = now
	return len(held), slices.MinFunc(held, model.CompareKeys), true
}

// Hold records of which of the synced peers the caller found the export of key missing
// although they did not withdraw it, in place of what was recorded of key before. It
// returns the holds, sorted by cluster, without those that the administrator has
// confirmed: what was imported of these is to be removed. What is recorded of a peer that
// is not synced stays as it is.
func (s *Set) Hold(key types.NamespacedName, missing []model.ClusterID) []model.Hold {
	var out []model.Hold
	for _, r := range *s.view.Load() {
		var hold model.Hold
		var held bool
		switch {
		case slices.Contains(missing, r.id):
			hold, held = s.holdMissing(r, key)
		case r.from == nil:
			hold, held = s.hold(r, key)
		case r.states:
			// What the guard holds of other peers may be of an import that is gone here.
			r.holds.set(key, false, s.opts.Clock.Now())
		}
		if held {
			out = append(out, hold)
		}
	}
	return out
}

// holdMissing is the hold of the export of key that the caller did not find in r. Since
// then the export may have been published again, or r may have become unsynced. What
// the caller found says nothing then, and the import is kept. The event of that change
// has the import decided again.
func (s *Set) holdMissing(r snapshot, key types.NamespacedName) (model.Hold, bool) {
	now := s.opts.Clock.Now()
	outdated := r.from == nil || isExported(r, key)
	if r.states {
		r.holds.set(key, true, now)
		since, held := r.holds.held(key)
		return model.Hold{Cluster: r.id, Since: since, Message: missingMessage(r.id, r.secret)}, held || outdated
	}
	if hold, held := s.hold(r, key); held || !outdated {
		return hold, held
	}
	return model.Hold{Cluster: r.id, Since: now.UTC().Truncate(time.Second), Message: missingMessage(r.id, r.secret)}, true
}

// Held are the holds of key, sorted by cluster. What was imported from these clusters
// is kept.
func (s *Set) Held(key types.NamespacedName) []model.Hold {
	var out []model.Hold
	for _, r := range *s.view.Load() {
		if hold, held := s.hold(r, key); held {
			out = append(out, hold)
		}
	}
	return out
}

// hold is that of the export of key of one peer.
func (s *Set) hold(r snapshot, key types.NamespacedName) (model.Hold, bool) {
	if isExported(r, key) {
		return model.Hold{}, false
	}
	if r.states {
		since, held := r.holds.held(key)
		return model.Hold{Cluster: r.id, Since: since, Message: missingMessage(r.id, r.secret)}, held
	}
	if r.from != nil {
		// The informer may not have called its handler yet.
		r.guard.Absent(key, s.opts.Clock.Now())
	}
	hold, held := r.guard.Held(key)
	if !held {
		return model.Hold{}, false
	}
	return model.Hold{Cluster: r.id, Since: hold.Since, Until: hold.Until, Message: holdMessage(r.id, r.secret, hold)}, true
}

// isExported reports whether a synced peer publishes the export of key now.
func isExported(r snapshot, key types.NamespacedName) bool {
	if r.from == nil {
		return false
	}
	_, there := r.from.Export(key)
	return there
}

// missingMessage says why an export of a peer that publishes withdrawals is on hold,
// and how to end that.
func missingMessage(id model.ClusterID, secret types.NamespacedName) string {
	return fmt.Sprintf("it is missing from the exchange of cluster %[1]s although cluster %[1]s did not withdraw it; what was imported of it is kept until it is there again; "+
		"remedy: %s", id, endHold(id, secret))
}

// holdMessage says why an export of a peer that does not publish withdrawals is on hold,
// and how to end that. It does not change as long as the export is on hold.
func holdMessage(id model.ClusterID, secret types.NamespacedName, hold deletionguard.Hold) string {
	return fmt.Sprintf("more than %d of the %d exports of cluster %s disappeared within a minute, which may be an accident; what was imported from them is kept "+
		"until they are published again, or until %s; remedy: export them again in cluster %s, or confirm their deletion: %s",
		hold.Budget, hold.Of, id, hold.Until.Format(time.RFC3339), id, confirmCommand(secret))
}

// endHold says what ends the holds of exports that are missing.
func endHold(id model.ClusterID, secret types.NamespacedName) string {
	return fmt.Sprintf("let cluster %s publish it again (kubectl comity join restores its exchange namespaces), confirm that it is gone: %s, or remove the peer: kubectl comity leave",
		id, confirmCommand(secret))
}

// confirmCommand confirms what of a peer is missing now.
func confirmCommand(secret types.NamespacedName) string {
	return fmt.Sprintf("kubectl annotate secret -n %s %s --overwrite %s=$(date -u +%%Y-%%m-%%dT%%H:%%M:%%SZ)",
		secret.Namespace, secret.Name, model.AnnotationConfirmDeletions)
}
