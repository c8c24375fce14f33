// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/comity-mcs/comity/sync/decide"
)

// fight plays somebody who changes an object back as soon as it was applied.
type fight struct {
	*driftLimiter
	at      time.Time
	version int
}

func newFight() *fight {
	f := &fight{at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	f.driftLimiter = newDriftLimiter(func() time.Time { return f.at })
	return f
}

var derived = driftObject{kind: "Service", name: "derived-1"}

// answer applies digest once it may, and says how long that took.
func (f *fight) answer(digest string) time.Duration {
	wait := f.wait(key("web"), derived, digest)
	f.at = f.at.Add(wait)
	f.version++
	f.note(key("web"), derived, digest, fmt.Sprint(f.version), "kubectl-edit")
	return wait
}

func TestATugOfWarBacksOff(t *testing.T) {
	f := newFight()
	var waits []time.Duration
	for range 15 {
		waits = append(waits, f.answer("d"))
		f.at = f.at.Add(100 * time.Millisecond)
	}
	second := time.Second
	want := []time.Duration{0, 0, 0, 0, 0, 0, 0, 9900 * time.Millisecond, 20*second - 100*time.Millisecond, 40*second - 100*time.Millisecond,
		80*second - 100*time.Millisecond, 160*second - 100*time.Millisecond, 300*second - 100*time.Millisecond, 300*second - 100*time.Millisecond, 300*second - 100*time.Millisecond}
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
	contested, again := f.contested(key("web"))
	if diff := cmp.Diff([]decide.Contested{{Kind: "Service", Name: "derived-1", By: "kubectl-edit"}}, contested); diff != "" || again <= 0 || again > lastDriftDelay {
		t.Errorf("look again in %v; contested (-want +got):\n%s", again, diff)
	}
	if wait := f.wait(key("web"), derived, "another"); wait != 0 {
		t.Errorf("what is wanted anew waits %v", wait)
	}

	t.Log("left alone for a minute after the delay, it is over")
	f.at = f.at.Add(lastDriftDelay + driftWindow)
	if contested, again := f.contested(key("web")); contested != nil || again != 0 {
		t.Errorf("still contested: %v, look again in %v", contested, again)
	}
	if first, second := f.answer("d"), f.answer("d"); first != 0 || second != 0 {
		t.Errorf("a change later on is answered after %v and %v, want at once", first, second)
	}
}

func TestWhatIsNoTugOfWarNeverWaits(t *testing.T) {
	for name, step := range map[string]func(f *fight, n int) time.Duration{
		"endpoints that come and go": func(f *fight, n int) time.Duration { return f.answer(fmt.Sprint(n % 2)) },
		"a user who edits now and then": func(f *fight, _ int) time.Duration {
			f.at = f.at.Add(13 * time.Second)
			return f.answer("d")
		},
		"a cache that lags behind our own write": func(f *fight, _ int) time.Duration {
			f.version = 0
			return f.answer("d")
		},
		"an export that comes and goes": func(f *fight, _ int) time.Duration {
			wait := f.wait(key("web"), derived, "d")
			f.note(key("web"), derived, "d", "", "")
			f.forget(key("web"), derived)
			return wait
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFight()
			for n := range 50 {
				if wait := step(f, n); wait != 0 {
					t.Fatalf("step %d waits %v", n, wait)
				}
			}
			if contested, _ := f.contested(key("web")); contested != nil {
				t.Errorf("contested: %v", contested)
			}
		})
	}
}

func TestAnObjectThatIsDeletedAgainAndAgainIsContested(t *testing.T) {
	f := newFight()
	waited := false
	for range 10 {
		wait := f.wait(key("web"), derived, "d")
		waited = waited || wait > 0
		f.note(key("web"), derived, "d", "", "")
	}
	if contested, _ := f.contested(key("web")); !waited || len(contested) != 1 || contested[0].By != "" {
		t.Errorf("waited %v, contested %v", waited, contested)
	}
}

func TestAContestRemembersOnlyWhatWasWrittenLately(t *testing.T) {
	f := newFight()
	for n := range 10_000 {
		f.note(key(fmt.Sprint(n)), derived, "d", "1", "")
		f.at = f.at.Add(time.Second)
	}
	if f.size > 3000 || len(f.objects) != f.size {
		t.Errorf("remembers %d objects of %d imports", f.size, len(f.objects))
	}
}
