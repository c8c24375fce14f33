// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
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
	objects *lru.Cache // types.UID → writes
}

// maxLimited is of how many objects the recent writes are known. What was written longer
// ago than so many others may be written at once.
const maxLimited = 10_000

// writes are the recent writes of one object.
type writes struct {
	// deferrable is when a deferrable change was last written; zero if none was.
	deferrable time.Time
	// full is when the object may use its whole burst again: each write moves it
	// by one interval.
	full time.Time
}

func newRateLimiter(interval time.Duration, burst int) *rateLimiter {
	return &rateLimiter{interval: interval, burst: burst, objects: lru.New(maxLimited)}
}

// delay is how long to wait before a change of the object may be written. A
// change that is urgent in part is urgent.
func (l *rateLimiter) delay(uid types.UID, urgent bool, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	recent, known := l.recent(uid)
	if !known {
		return 0
	}
	wait := recent.full.Sub(now) - time.Duration(l.burst-1)*l.interval
	if !urgent && !recent.deferrable.IsZero() {
		wait = max(wait, recent.deferrable.Add(l.interval).Sub(now))
	}
	// No wait is longer than an interval, even if the clock was set back.
	return min(max(wait, 0), l.interval)
}

// wrote notes that a change was written.
func (l *rateLimiter) wrote(uid types.UID, urgent bool, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	recent, _ := l.recent(uid)
	if recent.full.Before(now) {
		recent.full = now
	}
	recent.full = recent.full.Add(l.interval)
	if !urgent {
		recent.deferrable = now
	}
	l.objects.Add(uid, recent)
}

func (l *rateLimiter) recent(uid types.UID) (recent writes, known bool) {
	kept, _ := l.objects.Get(uid)
	recent, known = kept.(writes)
	return recent, known
}
