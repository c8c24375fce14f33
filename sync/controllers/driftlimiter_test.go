// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// fight plays somebody who changes an object back as soon as it was applied.
type fight struct {
	*driftLimiter
	clock   *clocktesting.FakeClock
	version int
}

func newFight() *fight {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	return &fight{newDriftLimiter(clock, 10*time.Second), clock, 0}
}

var theService = driftObject{kind: "Service", name: "derived-1"}

// as is the object with some content.
func as(content string) plan.Object {
	return &corev1.Service{TypeMeta: metav1.TypeMeta{Kind: theService.kind}, ObjectMeta: metav1.ObjectMeta{Name: theService.name, Labels: map[string]string{"content": content}}}
}

// wait is how long the object has to wait until it may be applied.
func (f *fight) wait(content string) (wait time.Duration) {
	for len(f.allowed(key("web"), []plan.Action{{Verb: plan.Update, Object: as(content)}})) == 0 {
		f.clock.Step(100 * time.Millisecond)
		wait += 100 * time.Millisecond
	}
	return wait
}

// answer applies the object once it may, and says how long that took.
func (f *fight) answer(content string) time.Duration {
	wait := f.wait(content)
	f.version++
	f.note(key("web"), as(content), fmt.Sprint(f.version), "kubectl-edit")
	return wait
}

func TestATugOfWarBacksOff(t *testing.T) {
	f := newFight()
	var waits []time.Duration
	for range 10 {
		waits = append(waits, f.answer("d"))
	}
	second := time.Second
	want := []time.Duration{0, 0, 0, 0, 0, 0, 10 * second, 10 * second, 10 * second, 10 * second}
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
	contested, again := f.contested(key("web"))
	if diff := cmp.Diff([]model.Problem{{Reason: "Contested", Message: "Service shop/derived-1 is repeatedly changed by field manager \"kubectl-edit\", so Comity corrects it less often; let only Comity write to it"}}, contested); diff != "" || again <= 0 || again > 11*second {
		t.Errorf("look again in %v; contested (-want +got):\n%s", again, diff)
	}
	if wait := f.wait("another"); wait != 0 {
		t.Errorf("what is wanted anew waits %v", wait)
	}

	t.Log("it is reported until as many corrections could be made at once as before")
	f.clock.Step(20 * second)
	if contested, again := f.contested(key("web")); contested == nil || again != 30*second {
		t.Errorf("contested: %v, look again in %v", contested, again)
	}
	f.clock.Step(30 * second)
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
			f.clock.Step(13 * time.Second)
			return f.answer("d")
		},
		"a cache that lags behind our own write": func(f *fight, _ int) time.Duration {
			f.version = 0
			return f.answer("d")
		},
		"an export that comes and goes": func(f *fight, _ int) time.Duration {
			wait := f.wait("d")
			f.note(key("web"), as("d"), "", "")
			delete(f.of(key("web")), theService)
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

func TestBurstsWithPausesAreContested(t *testing.T) {
	f := newFight()
	for range 3 {
		f.clock.Step(13 * time.Second)
		for range driftLimit {
			f.answer("d")
		}
	}
	if contested, _ := f.contested(key("web")); contested == nil {
		t.Error("five changes every 13 s are corrected at once for ever")
	}
}

func TestAnObjectThatIsDeletedAgainAndAgainIsContested(t *testing.T) {
	f := newFight()
	waited := false
	for range 10 {
		wait := f.wait("d")
		waited = waited || wait > 0
		f.note(key("web"), as("d"), "", "")
	}
	if contested, _ := f.contested(key("web")); !waited || len(contested) != 1 || !strings.Contains(contested[0].Message, "changed by something") {
		t.Errorf("waited %v, contested %v", waited, contested)
	}
}

func TestAContestRemembersOnlyWhatWasWrittenLately(t *testing.T) {
	f := newFight()
	for n := range 10_000 {
		f.note(key(fmt.Sprint(n)), as("d"), "1", "")
		f.clock.Step(time.Second)
	}
	if n := f.imports.Len(); n > 3000 {
		t.Errorf("remembers objects of %d imports", n)
	}
}
