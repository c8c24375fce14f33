// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package liveness computes whether a peer is Connected or Lost.
//
// It takes the times at which the Lease of the peer was seen renewed, whether its
// endpoints answer, and the present time; it gives a model.Liveness that changes only at transitions. It is
// kept apart because it is pure: no clock, no client and no wait. All times are
// those of this cluster; no clock of a peer is compared with another.
package liveness

import (
	"time"

	"github.com/comity-mcs/comity/sync/model"
)

// patience is for how many times as long a peer may lack a renewal of which the endpoints
// answer, or cannot be probed: its leader may be changing, and nothing is to be done.
const patience = 3

// Tracker follows one peer. It is not safe for concurrent use.
type Tracker struct {
	// lostAfter is how long the Lease may lack a renewal.
	lostAfter time.Duration
	// since is the start of the time without a renewal: the last renewal, or,
	// before the first, when the Tracker was made or the peer was first read.
	since time.Time
	// LastRenewal is when the Lease was seen renewed last; zero if it was not.
	LastRenewal time.Time
	// Liveness is the state as of the last Renewed or Update.
	Liveness model.Liveness
}

// New returns a Tracker of a peer whose Lease is watched from now on. The peer is
// Connected at first, and has as long as any other to renew its Lease.
func New(lostAfter time.Duration, now time.Time) *Tracker {
	return &Tracker{lostAfter: lostAfter, since: now, Liveness: model.Liveness{State: model.Connected}}
}

// Renewed records a renewal of the Lease, and reports whether it is the first one, or the
// peer was not Connected before.
func (t *Tracker) Renewed(now time.Time) bool {
	t.since, t.LastRenewal = now, now
	changed := t.Liveness.State != model.Connected || !t.Liveness.Seen
	t.Liveness = model.Liveness{State: model.Connected, Seen: true}
	return changed
}

// Reached records that the API server of the peer was read for the first time. It
// proves nothing about the agent there, but gives it time for a renewal.
func (t *Tracker) Reached(now time.Time) {
	if t.LastRenewal.IsZero() && t.Liveness.State == model.Connected {
		t.since = now
	}
}

// Skip leaves d out of the time without a renewal: this process did not run for
// so long, and could not have seen one.
func (t *Tracker) Skip(d time.Duration) { t.since = t.since.Add(d) }

// Missed reports whether a renewal is missing, Overdue whether for so long that the
// endpoints of the peer are to be probed.
func (t *Tracker) Missed(now time.Time) bool { return now.Sub(t.since) >= t.lostAfter/2 }

// Overdue is described with Missed.
func (t *Tracker) Overdue(now time.Time) bool { return now.Sub(t.since) >= t.lostAfter }

// Update sets the state that follows from the time without a renewal, and reports
// whether it changed. Silent says that probes of its endpoints are not answered; reason and
// message say why there was no renewal.
func (t *Tracker) Update(now time.Time, silent bool, reason, message string) bool {
	was, without := t.Liveness, now.Sub(t.since)
	isLost := without >= patience*t.lostAfter || silent && without >= t.lostAfter
	switch {
	case was.State == model.Lost: // only a renewal makes a peer Connected
		t.Liveness.Silent = silent
	case isLost:
		t.Liveness = model.Liveness{
			State: model.Lost, Silent: silent, Seen: !t.LastRenewal.IsZero(), Reason: reason, Message: message,
			Since: now.UTC().Truncate(time.Second), Confirmed: t.LastRenewal.UTC().Truncate(time.Second), // as conditions have times
		}
	}
	return t.Liveness != was
}
