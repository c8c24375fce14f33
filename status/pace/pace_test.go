// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

const interval = 5 * time.Second

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// step is one wish to write at a time since start, and how long it has to wait.
type step struct {
	at     time.Duration
	urgent bool
	calm   bool
	want   time.Duration
}

func TestPace(t *testing.T) {
	cases := []struct {
		name  string
		steps []step
	}{
		{"the first change goes at once", []step{{calm: true}}},
		{"a calm change waits for the rest of the interval", []step{{calm: true}, {at: 2 * time.Second, calm: true, want: 3 * time.Second}, {at: interval, calm: true}}},
		{"a calm change does not wait for an urgent one", []step{{urgent: true}, {at: time.Second, calm: true}}},
		{"an urgent change does not wait for a calm one", []step{{calm: true}, {at: time.Second, urgent: true}}},
		{
			"what rides along with an urgent change counts as calm too",
			[]step{{urgent: true, calm: true}, {at: time.Second, calm: true, want: 4 * time.Second}},
		},
		{
			"urgent changes go at once, up to a limit",
			[]step{{urgent: true}, {urgent: true}, {urgent: true}, {urgent: true, want: interval}, {at: 4 * time.Second, urgent: true, want: time.Second}, {at: interval, urgent: true}, {at: interval, urgent: true, want: interval}},
		},
		{
			"and all at once again after a rest",
			[]step{{urgent: true}, {urgent: true}, {urgent: true}, {at: time.Minute, urgent: true}, {at: time.Minute, urgent: true}, {at: time.Minute, urgent: true}},
		},
		{"a clock set back by an hour costs one interval", []step{{calm: true}, {at: -time.Hour, calm: true, want: interval}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := New(Options{Interval: interval, Burst: 3})
			for i, s := range c.steps {
				now := start.Add(s.at)
				got := p.Wait("u", s.urgent, now)
				if got != s.want {
					t.Fatalf("step %d: wait %s, want %s", i, got, s.want)
				}
				if got == 0 {
					p.Wrote("u", s.calm, now)
				}
			}
			if wait := p.Wait("other", false, start); wait != 0 {
				t.Errorf("another object waits %s", wait)
			}
		})
	}
}

// A change that is looked at again when its wait is over is written then: nobody
// waits for ever, and no object is written more often than it may.
func TestWhoeverWaitsAsToldIsWrittenAndNotTooOften(t *testing.T) {
	const burst = 3
	rapid.Check(t, func(t *rapid.T) {
		p := New(Options{Interval: interval, Burst: burst})
		now, writes, calmWrites := start, 0, 0
		var lastCalm time.Time
		for range rapid.IntRange(1, 60).Draw(t, "changes") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			urgent := rapid.Bool().Draw(t, "urgent")
			if wait := p.Wait("u", urgent, now); wait > 0 {
				if !rapid.Bool().Draw(t, "waits") {
					continue // something else came first
				}
				now = now.Add(wait)
			}
			if wait := p.Wait("u", urgent, now); wait != 0 {
				t.Fatalf("waited as told, and told to wait another %s", wait)
			}
			p.Wrote("u", !urgent, now)
			writes++
			if !urgent {
				if calmWrites++; calmWrites > 1 && now.Sub(lastCalm) < interval {
					t.Fatalf("two calm writes within %s", now.Sub(lastCalm))
				}
				lastCalm = now
			}
			if allowed := burst + int(now.Sub(start)/interval); writes > allowed {
				t.Fatalf("%d writes in %s, want at most %d", writes, now.Sub(start), allowed)
			}
		}
	})
}

func TestWhatWroteLongAgoIsForgotten(t *testing.T) {
	p := New(Options{Interval: interval, Burst: 3})
	for i := range 1000 {
		p.Wrote(types.UID(fmt.Sprint(i)), true, start)
	}
	p.Wrote("last", true, start.Add(interval))
	if len(p.objects) != 1 {
		t.Errorf("%d objects are remembered, want the last one", len(p.objects))
	}
}
