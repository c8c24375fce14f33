// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Options configure a Pacer.
type Options struct {
	// Interval lies between two writes of one object, once it has had its say.
	Interval time.Duration
	// Burst is how many urgent writes an object may have at once; an object's
	// life begins with a few.
	Burst int
}

// Pacer remembers the late writes of each object. It is safe for concurrent use.
//
//	change  may be written
//	calm    at once if none was for one interval, as far as an urgent one might be
//	urgent  at once up to Burst times, then once per interval
type Pacer struct {
	options Options

	mu      sync.Mutex
	objects map[types.UID]object
	// swept is when objects that may write anything were last forgotten.
	swept time.Time
}

type object struct {
	// calm is when a calm change was last written; zero if none was.
	calm time.Time
	// full is when the object may burst again: each write moves it by one
	// interval.
	full time.Time
}

// New gives a Pacer to which every object is new.
func New(o Options) *Pacer {
	return &Pacer{options: o, objects: map[types.UID]object{}}
}

// Wait is how long to wait before a change of the object may be written; zero
// if it may be now. A change that is urgent in part goes as urgent.
func (p *Pacer) Wait(uid types.UID, urgent bool, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, ok := p.objects[uid]
	if !ok {
		return 0
	}
	wait := known.full.Sub(now) - time.Duration(p.options.Burst-1)*p.options.Interval
	if !urgent && !known.calm.IsZero() {
		wait = max(wait, known.calm.Add(p.options.Interval).Sub(now))
	}
	// No wait is longer than an interval, even if the clock was set back.
	return min(max(wait, 0), p.options.Interval)
}

// Wrote notes that a change was written, and whether it was calm, be it in part.
func (p *Pacer) Wrote(uid types.UID, calm bool, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep(now)
	known := p.objects[uid]
	if known.full.Before(now) {
		known.full = now
	}
	known.full = known.full.Add(p.options.Interval)
	if calm {
		known.calm = now
	}
	p.objects[uid] = known
}

// sweep forgets, once per interval, the objects that may write anything: what is
// kept is bounded by how much is written.
func (p *Pacer) sweep(now time.Time) {
	if now.Sub(p.swept) < p.options.Interval {
		return
	}
	p.swept = now
	for uid, known := range p.objects {
		if !known.full.After(now) && now.Sub(known.calm) >= p.options.Interval {
			delete(p.objects, uid)
		}
	}
}
