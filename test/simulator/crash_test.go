// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FAULT 1: a process is killed at every write that it makes, and at one that
// the seed chooses; what stands in the end is what stands without.
func TestFault01KilledAtEveryWrite(t *testing.T) {
	end := func(seed uint64, kill func(*World)) (string, int) {
		w := New(quiet(seed, ids("a", "b"), keys("svc-adb", "svc-bbc")))
		w.users(16)
		w.rounds()
		w.users(6) // so that there is something to change and to delete
		kill(w)
		w.rounds()
		w.killAll, w.killAt = false, -1
		w.Check()
		return w.state(), w.calls
	}
	fault(t, 100, func(seed uint64) *World { return New(quiet(seed, ids("a"), nil)) }, func(w *World) {
		seed := uint64(w.n(1<<30, "seed"))
		var calls int
		want, most := end(seed, func(other *World) { calls = other.calls })
		for what, kill := range map[string]func(*World){
			"every write": func(other *World) { other.killAll = true },
			"one write":   func(other *World) { other.killAt = calls + w.n(max(1, most-calls), "kill at") },
		} {
			got, _ := end(seed, kill)
			w.holds("killed at %s, the end is another (-without +with):\n%s", got == want, what, cmp.Diff(want, got))
		}
	})
}

// FAULT 10: the old leader's writes arrive late, between those of the new one.
func TestFault10TwoLeaders(t *testing.T) {
	fault(t, 100, func(seed uint64) *World {
		o := quiet(seed, ids("a", "b"), keys("svc-adb", "svc-bbc"))
		o.Steps = map[string]int{"user": 10, "second leader": 6, "crash": 2, "meddle": 2}
		o.Between, o.Late, o.Stale = 2, 4, 4
		return New(o)
	}, func(w *World) {
		w.Live(150)
		w.Check()
	})
}

// FAULT 9: clocks that are an hour off, and of 1970 and 2099.
func TestFault09Clocks(t *testing.T) {
	fault(t, 100, func(seed uint64) *World {
		o := quiet(seed, ids("a", "b", "c"), keys("web"))
		o.Steps = map[string]int{"user": 10, "skew": 6, "crash": 1}
		return New(o)
	}, func(w *World) {
		w.Live(120)
		w.Check()
	})
}
