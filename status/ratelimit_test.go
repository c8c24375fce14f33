// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

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
	want   time.Duration
}

func TestRateLimit(t *testing.T) {
	cases := []struct {
		name  string
		steps []step
	}{
		{"the first change goes at once", []step{{}}},
		{"a deferrable change waits for the rest of the interval", []step{{}, {at: 2 * time.Second, want: 3 * time.Second}, {at: interval}}},
		{"a deferrable change does not wait for an urgent one", []step{{urgent: true}, {at: time.Second}}},
		{"an urgent change does not wait for a deferrable one", []step{{}, {at: time.Second, urgent: true}}},
		{
			"urgent changes go at once, up to a limit",
			[]step{{urgent: true}, {urgent: true}, {urgent: true}, {urgent: true, want: interval}, {at: 4 * time.Second, urgent: true, want: time.Second}, {at: interval, urgent: true}, {at: interval, urgent: true, want: interval}},
		},
		{
			"and all at once again after a rest",
			[]step{{urgent: true}, {urgent: true}, {urgent: true}, {at: time.Minute, urgent: true}, {at: time.Minute, urgent: true}, {at: time.Minute, urgent: true}},
		},
		{"a clock set back by an hour costs one interval", []step{{}, {at: -time.Hour, want: interval}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := newRateLimiter(interval, 3)
			for i, s := range c.steps {
				now := start.Add(s.at)
				got := p.delay("u", s.urgent, now)
				if got != s.want {
					t.Fatalf("step %d: wait %s, want %s", i, got, s.want)
				}
				if got == 0 {
					p.wrote("u", s.urgent, now)
				}
			}
			if wait := p.delay("other", false, start); wait != 0 {
				t.Errorf("another object waits %s", wait)
			}
		})
	}
}

// A change that is retried when its delay is over is written then: nothing waits
// for ever, and no object is written more often than it may.
func TestAChangeIsWrittenAfterItsDelayAndNotTooOften(t *testing.T) {
	const limit = 3
	rapid.Check(t, func(t *rapid.T) {
		p := newRateLimiter(interval, limit)
		now, writes, deferrableWrites := start, 0, 0
		var lastDeferrable time.Time
		for range rapid.IntRange(1, 60).Draw(t, "changes") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			urgent := rapid.Bool().Draw(t, "urgent")
			if wait := p.delay("u", urgent, now); wait > 0 {
				if !rapid.Bool().Draw(t, "waits") {
					continue // something else came first
				}
				now = now.Add(wait)
			}
			if wait := p.delay("u", urgent, now); wait != 0 {
				t.Fatalf("waited, and has to wait another %s", wait)
			}
			p.wrote("u", urgent, now)
			writes++
			if !urgent {
				if deferrableWrites++; deferrableWrites > 1 && now.Sub(lastDeferrable) < interval {
					t.Fatalf("two deferrable writes within %s", now.Sub(lastDeferrable))
				}
				lastDeferrable = now
			}
			if allowed := limit + int(now.Sub(start)/interval); writes > allowed {
				t.Fatalf("%d writes in %s, want at most %d", writes, now.Sub(start), allowed)
			}
		}
	})
}

func TestWhatWroteLongAgoIsForgotten(t *testing.T) {
	p := newRateLimiter(interval, 3)
	for i := range maxLimited + 1 {
		p.wrote(types.UID(fmt.Sprint(i)), false, start)
	}
	if p.objects.Len() != maxLimited {
		t.Errorf("%d objects are remembered, want the last %d", p.objects.Len(), maxLimited)
	}
}
