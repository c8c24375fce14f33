// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package liveness says whether a peer is heard of: Connected, Stale or Lost.
//
// It takes moments at which something was heard and the time now; it gives a
// model.Liveness that changes only at transitions. All times are this cluster's:
// no clock of a peer is ever compared. It waits for nothing and asks nobody.
package liveness

import (
	"time"

	"github.com/comity-mcs/comity/sync/model"
)

// Times are how long a peer may be silent before it is Stale, and then Lost.
type Times struct{ Stale, Lost time.Duration }

// Tracker follows one peer. It is not safe for concurrent use.
type Tracker struct {
	times Times
	// since is from when silence counts: when the peer was last heard of, or,
	// until it ever was, when it was first looked for or first read.
	since   time.Time
	heard   time.Time // zero if never
	contact model.Liveness
}

// New returns a Tracker of a peer that is looked for from now on. It is
// Connected until it was silent for as long as any other may be.
func New(times Times, now time.Time) *Tracker {
	return &Tracker{times: times, since: now, contact: model.Liveness{State: model.Connected}}
}

// Liveness is the state as it was last judged.
func (t *Tracker) Liveness() model.Liveness { return t.contact }

// Heard notes that the peer was heard of, and reports whether that ends a
// silence.
func (t *Tracker) Heard(now time.Time) bool {
	t.since, t.heard = now, now
	ended := t.contact.State != model.Connected
	t.contact = model.Liveness{State: model.Connected}
	return ended
}

// Reached notes that the peer's API server was read for the first time. It
// proves nothing of the agent there, but gives that time to be heard of.
func (t *Tracker) Reached(now time.Time) {
	if t.heard.IsZero() && t.contact.State == model.Connected {
		t.since = now
	}
}

// Excuse takes d out of the silence: this process did not run for so long, and
// could not have heard anything.
func (t *Tracker) Excuse(d time.Duration) { t.since = t.since.Add(d) }

// Due reports whether the silence is long enough for a worse state.
func (t *Tracker) Due(now time.Time) bool { return t.state(now) != t.contact.State }

// Silent reports whether nothing was heard for as long as makes a peer Stale.
func (t *Tracker) Silent(now time.Time) bool { return now.Sub(t.since) >= t.times.Stale }

// Judge moves to the state that the silence has come to, and reports whether
// that is another one. Reason and message say what keeps the peer from being heard.
func (t *Tracker) Judge(now time.Time, reason, message string) bool {
	state := t.state(now)
	if state == t.contact.State || state == model.Connected {
		return false // only being heard of ends a silence
	}
	t.contact = model.Liveness{State: state, Since: seconds(now), Confirmed: seconds(t.heard), Reason: reason, Message: message}
	return true
}

func (t *Tracker) state(now time.Time) model.LivenessState {
	switch silence := now.Sub(t.since); {
	case silence >= t.times.Lost:
		return model.Lost
	case silence >= t.times.Stale:
		return model.Stale
	}
	return model.Connected
}

// seconds is what a condition shows of a time.
func seconds(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Second)
}
