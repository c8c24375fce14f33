// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// rateLimiter limits how often the status of one object is written, so that
// other clusters which change every second do not cause as many writes and events
// here. It starts no timer: a caller that has to wait computes the status again
// afterwards, and so always writes the latest. It is safe for concurrent use.
//
//	change      may be written
//	deferrable  once per interval, and no more often than an urgent one
//	urgent      at once up to burst times, then once per interval
type rateLimiter struct {
	interval time.Duration
	burst    int

	mu      sync.Mutex
	objects map[types.UID]writes
	// swept is when objects without a limit were last forgotten.
	swept time.Time
}

// writes are the recent writes of one object.
type writes struct {
	// deferrable is when a deferrable change was last written; zero if none was.
	deferrable time.Time
	// full is when the object may use its whole burst again: each write moves it
	// by one interval.
	full time.Time
}

func newRateLimiter(interval time.Duration, burst int) *rateLimiter {
	return &rateLimiter{interval: interval, burst: burst, objects: map[types.UID]writes{}}
}

// delay is how long to wait before a change of the object may be written. A
// change that is urgent in part counts as urgent.
func (l *rateLimiter) delay(uid types.UID, urgent bool, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	recent, ok := l.objects[uid]
	if !ok {
		return 0
	}
	wait := recent.full.Sub(now) - time.Duration(l.burst-1)*l.interval
	if !urgent && !recent.deferrable.IsZero() {
		wait = max(wait, recent.deferrable.Add(l.interval).Sub(now))
	}
	// No wait is longer than an interval, even if the clock was set back.
	return min(max(wait, 0), l.interval)
}

// wrote notes that a change was written, and whether it was deferrable, be it in
// part.
func (l *rateLimiter) wrote(uid types.UID, deferrable bool, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep(now)
	recent := l.objects[uid]
	if recent.full.Before(now) {
		recent.full = now
	}
	recent.full = recent.full.Add(l.interval)
	if deferrable {
		recent.deferrable = now
	}
	l.objects[uid] = recent
}

// sweep forgets, once per interval, the objects that no limit applies to: memory
// is bounded by how much is written.
func (l *rateLimiter) sweep(now time.Time) {
	if now.Sub(l.swept) < l.interval {
		return
	}
	l.swept = now
	for uid, recent := range l.objects {
		if !recent.full.After(now) && now.Sub(recent.deferrable) >= l.interval {
			delete(l.objects, uid)
		}
	}
}
