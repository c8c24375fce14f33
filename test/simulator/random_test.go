// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/sync/model"
)

var (
	only  = flag.Int64("seed", -1, "run this seed only, of the tests that -run selects")
	seeds = flag.Int("seeds", 0, "run that many seeds in each test; by default as many as the test says")
)

// TestMain has the collector run seldom: worlds are small and short-lived, and a third of
// the time would go into collecting them.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// keys are those of shop, the first two of which collide in adler32.
func keys(names ...string) []types.NamespacedName {
	var out []types.NamespacedName
	for _, name := range names {
		out = append(out, types.NamespacedName{Namespace: "shop", Name: name})
	}
	return out
}

func ids(names ...model.ClusterID) []model.ClusterID { return names }

// each runs a test for many seeds and says how to run a failing one again.
func each(t *testing.T, count int, run func(seed uint64) error) {
	t.Helper()
	if *seeds > 0 {
		count = *seeds
	}
	first := 0
	if *only >= 0 {
		first, count = int(*only), 1
	}
	for seed := first; seed < first+count; seed++ {
		if err := run(uint64(seed)); err != nil {
			t.Fatalf("seed %d: %v\nreplay: go -C test test ./simulator -run '^%s$' -seed %d", seed, err, t.Name(), seed)
		}
	}
}

// random is a small world in which everything can happen.
func random(source Source) Options {
	return Options{
		Source: source, Clusters: ids("a", "b", "c"), Keys: keys("svc-adb", "svc-bbc"),
		Steps: Everything(), Calls: 10, Between: 6, Late: 3, Stale: 3, Families: true, Retype: true, Ports: true,
		Limits: Limits(),
	}
}

// TestRandomWorlds lets everything happen.
func TestRandomWorlds(t *testing.T) {
	t.Parallel()
	each(t, 200, func(seed uint64) error {
		w := New(random(Seed(seed)))
		return w.Run(func() { w.Live(150); w.Check() })
	})
}

// drawn is a Source that rapid shrinks.
type drawn struct{ *rapid.T }

func (d drawn) N(n int, what string) int { return rapid.IntRange(0, n-1).Draw(d.T, what) }

// TestRandomWorldsShrink is the same; a failure comes out as small as can be.
func TestRandomWorldsShrink(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := New(random(drawn{t}))
		if err := w.Run(func() { w.Live(60); w.Check() }); err != nil {
			t.Fatal(err)
		}
	})
}

// TestTheSameSeedIsTheSameRun compares what happened in two runs of one seed.
func TestTheSameSeedIsTheSameRun(t *testing.T) {
	t.Parallel()
	run := func() []string {
		w := New(random(Seed(7)))
		if err := w.Run(func() { w.Live(400); w.Check() }); err != nil {
			t.Fatal(err)
		}
		return w.Trace()
	}
	first, second := run(), run()
	if len(first) < 200 {
		t.Fatalf("only %d events: too few to say anything", len(first))
	}
	if !slices.Equal(first, second) {
		for i := range first {
			if i >= len(second) || first[i] != second[i] {
				t.Fatalf("event %d: %s", i, fmt.Sprintf("%q then %q", first[i], second[min(i, len(second)-1)]))
			}
		}
	}
}
