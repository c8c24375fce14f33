// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package deletionguard

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func key(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: fmt.Sprint("web-", i)}
}

// knowing is a Guard that has seen n exports.
func knowing(n int) *Guard {
	g := New(10 * time.Minute)
	for i := range n {
		g.Present(key(i))
	}
	return g
}

// stream lets the exports from first to last vanish one by one at one moment.
func stream(g *Guard, first, last int, now time.Time) {
	for i := first; i < last; i++ {
		g.Absent(key(i), now)
	}
}

// relist is a list that lacks the exports from first to last.
func relist(g *Guard, first, last int, now time.Time) {
	lacking := map[types.NamespacedName]bool{}
	for i := first; i < last; i++ {
		lacking[key(i)] = true
	}
	g.Retain(func(k types.NamespacedName) bool { return !lacking[k] }, now)
}

func TestHowManyAreHeld(t *testing.T) {
	for _, c := range []struct {
		name  string
		total int
		do    func(*Guard)
		want  int
	}{
		{"ten of few may vanish in one list", 12, func(g *Guard) { relist(g, 0, 10, at(0)) }, 0},
		{"eleven are held, all of them", 12, func(g *Guard) { relist(g, 0, 11, at(0)) }, 11},
		{"a quarter of many may vanish", 100, func(g *Guard) { relist(g, 0, 25, at(0)) }, 0},
		{"one more and all are held", 100, func(g *Guard) { relist(g, 0, 26, at(0)) }, 26},
		{"an empty list holds everything", 1000, func(g *Guard) { relist(g, 0, 1000, at(0)) }, 1000},
		{"a stream is cut off when the budget is used up", 100, func(g *Guard) { stream(g, 0, 60, at(0)) }, 35},
		{"a stream is cut off within the minute", 100, func(g *Guard) { stream(g, 0, 20, at(0)); stream(g, 20, 40, at(59)) }, 15},
		{"after a minute there is a new budget", 100, func(g *Guard) { stream(g, 0, 20, at(0)); stream(g, 20, 40, at(60)) }, 0},
		{"while some are held there is no new budget", 100, func(g *Guard) { relist(g, 0, 30, at(0)); stream(g, 30, 31, at(300)) }, 31},
		{"what is back is not counted", 100, func(g *Guard) {
			stream(g, 0, 25, at(0))
			for i := range 25 {
				g.Present(key(i))
			}
			stream(g, 30, 55, at(1))
		}, 0},
		{"what is back is not held", 100, func(g *Guard) { relist(g, 0, 100, at(0)); g.Present(key(5), key(6)) }, 98},
		{"what was never seen is not held", 0, func(g *Guard) { stream(g, 0, 100, at(0)) }, 0},
		{"what comes and goes is no accident", 1, func(g *Guard) {
			for i := 100; i < 200; i++ {
				g.Present(key(i))
				stream(g, i, i+1, at(i/10))
			}
		}, 0},
		{"what comes instead makes room for as many", 40, func(g *Guard) {
			stream(g, 0, 10, at(0))
			for i := 100; i < 104; i++ {
				g.Present(key(i), key(i)) // each once
			}
			stream(g, 10, 20, at(1))
		}, 6},
		{"what came before makes none", 40, func(g *Guard) {
			for i := 100; i < 140; i++ {
				g.Present(key(i))
			}
			stream(g, 0, 40, at(1))
		}, 20},
		{"what is told twice counts once", 40, func(g *Guard) {
			for range 50 {
				g.Absent(key(1), at(0))
			}
			stream(g, 2, 11, at(0))
		}, 0},
		{"it is over after its time", 100, func(g *Guard) { relist(g, 0, 30, at(0)); g.Expire(at(600)) }, 0},
		{"and not before", 100, func(g *Guard) { relist(g, 0, 30, at(0)); g.Expire(at(599)) }, 30},
		{"a confirmation ends it", 100, func(g *Guard) { relist(g, 0, 30, at(5)); g.Confirm(at(5)) }, 0},
		{"an older confirmation does not", 100, func(g *Guard) { relist(g, 0, 30, at(5)); g.Confirm(at(4)) }, 30},
		{"a confirmation counts for what vanished up to then", 100, func(g *Guard) {
			relist(g, 0, 30, at(5))
			relist(g, 30, 40, at(9))
			g.Confirm(at(5))
		}, 10},
		{"what was confirmed counts for nothing more", 40, func(g *Guard) { stream(g, 0, 10, at(0)); g.Confirm(at(5)); stream(g, 10, 20, at(9)) }, 0},
		{"what vanished after the confirmation does", 40, func(g *Guard) { stream(g, 0, 10, at(9)); g.Confirm(at(5)); stream(g, 10, 20, at(9)) }, 10},
		{"a confirmation beforehand holds nothing", 100, func(g *Guard) { g.Confirm(at(60)); relist(g, 0, 100, at(60)) }, 0},
		{"until its time", 100, func(g *Guard) { g.Confirm(at(60)); relist(g, 0, 100, at(61)) }, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := knowing(c.total)
			c.do(g)
			if got := len(g.Keys()); got != c.want {
				t.Errorf("%d are held, want %d", got, c.want)
			}
		})
	}
}

func TestAHoldSaysHowManyWereThereAndDoesNotChange(t *testing.T) {
	g := knowing(100)
	stream(g, 0, 26, at(0))
	want := Hold{Since: at(0), Until: at(600), Budget: 25, Of: 100}
	for _, then := range []func(){func() {}, func() { stream(g, 26, 90, at(10)) }} {
		then()
		if got, held := g.Held(key(25)); !held || got != want {
			t.Errorf("got %+v, %v; want %+v", got, held, want)
		}
	}
	if _, held := g.Held(key(3)); held {
		t.Error("what vanished within the budget is held")
	}
}

func TestAnAccidentIsNewsOnceItsExtentIsKnown(t *testing.T) {
	g := knowing(100)
	var got []string
	for s := range 60 {
		if s < 5 {
			stream(g, s*10, s*10+10, at(s))
		}
		if held, hold, isNew := g.NewHolds(at(s)); isNew {
			got = append(got, fmt.Sprint(s, ": ", held, " of ", hold.Of))
		}
	}
	if len(got) != 1 || got[0] != "6: 25 of 100" {
		t.Errorf("got %q", got)
	}
	g.Expire(at(700))
	relist(g, 50, 100, at(800))
	if held, _, isNew := g.NewHolds(at(802)); !isNew || held != 50 {
		t.Errorf("the next accident: %d, %v", held, isNew)
	}
}

// Whatever happens in whatever order: what is there or held becomes fewer by no
// more than the budget within a minute, and what is there is never held.
func TestNoMoreThanTheBudgetIsEverBelieved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(1, 120).Draw(t, "exports")
		g := knowing(total)
		present := map[int]bool{}
		for i := range total {
			present[i] = true
		}
		kept := map[int]int{0: total} // second → how many were there or held at most
		second := 0
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			second += rapid.IntRange(0, 40).Draw(t, "seconds")
			first := rapid.IntRange(0, total-1).Draw(t, "first")
			last := rapid.IntRange(first, total).Draw(t, "last")
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				for i := first; i < last; i++ {
					present[i] = true
					g.Present(key(i))
				}
			case 1:
				for i := first; i < last; i++ {
					present[i] = false
				}
				stream(g, first, last, at(second))
			case 2:
				for i := first; i < last; i++ {
					present[i] = false
				}
				seen := map[types.NamespacedName]bool{}
				for i := range total {
					seen[key(i)] = present[i]
				}
				g.Retain(func(k types.NamespacedName) bool { return seen[k] }, at(second))
			}
			now := 0
			for i := range total {
				_, held := g.Held(key(i))
				if held && present[i] {
					t.Fatalf("export %d is there and held", i)
				}
				if held || present[i] {
					now++
				}
			}
			kept[second] = max(kept[second], now)
			for then, before := range kept {
				if second-then < 60 && before-now > max(10, total/4) {
					t.Fatalf("of %d exports at second %d, %d are left at second %d", before, then, now, second)
				}
			}
		}
	})
}
