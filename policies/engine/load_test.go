// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
)

// inPackage is a policy that denies with its name and the version.
func inPackage(name, pkg string, version int) engine.Policy {
	policy := denying(pkg, fmt.Sprintf("%s v%d", name, version), "true")
	policy.Name = name
	return policy
}

// broken is a policy that does not compile.
func broken(name string) engine.Policy { return engine.Policy{Name: name, Module: "no rego"} }

// said is what the policies answer, in order.
func said(t testing.TB, e *engine.Engine) []string {
	t.Helper()
	out := []string{}
	for _, violation := range e.Evaluate(context.Background(), request()).Violations {
		out = append(out, violation.Message)
	}
	return out
}

func TestALoadReplacesWhatWasLoaded(t *testing.T) {
	type load []engine.Policy
	tests := map[string]struct {
		loads  []load
		said   []string
		errors string // of the last load, one character a policy: . or E
	}{
		"a new version replaces the old": {
			loads:  []load{{inPackage("p", "a", 1)}, {inPackage("p", "a", 2)}},
			said:   []string{"p v2"},
			errors: ".",
		},
		"a policy that is gone is gone": {
			loads: []load{{inPackage("p", "a", 1)}, {}},
			said:  []string{},
		},
		"a broken policy keeps its last good version": {
			loads:  []load{{inPackage("p", "a", 1), inPackage("q", "b", 1)}, {broken("p"), inPackage("q", "b", 2)}},
			said:   []string{"p v1", "q v2"},
			errors: "E.",
		},
		"for as long as it is broken": {
			loads:  []load{{inPackage("p", "a", 1)}, {broken("p")}, {broken("p"), inPackage("q", "b", 1)}},
			said:   []string{"p v1", "q v1"},
			errors: "E.",
		},
		"and is mended": {
			loads:  []load{{inPackage("p", "a", 1)}, {broken("p")}, {inPackage("p", "a", 2)}},
			said:   []string{"p v2"},
			errors: ".",
		},
		"a policy that never was good is left out": {
			loads:  []load{{broken("p"), inPackage("q", "b", 1)}},
			said:   []string{"q v1"},
			errors: "E.",
		},
		"a deleted policy's last good version is not kept": {
			loads:  []load{{inPackage("p", "a", 1)}, {}, {broken("p")}},
			said:   []string{},
			errors: "E",
		},
		"of two with one package the first has it": {
			loads:  []load{{inPackage("q", "a", 1), inPackage("p", "a", 1)}},
			said:   []string{"q v1"},
			errors: ".E",
		},
		"a newcomer takes no package from who holds it, whatever the order": {
			loads:  []load{{inPackage("q", "a", 1)}, {inPackage("p", "a", 1), inPackage("q", "a", 2)}},
			said:   []string{"q v2"},
			errors: "E.",
		},
		"nor from a broken one": {
			loads:  []load{{inPackage("q", "a", 1)}, {inPackage("p", "a", 1), broken("q")}},
			said:   []string{"q v1"},
			errors: "EE",
		},
		"a package that is given up is free at once": {
			loads:  []load{{inPackage("q", "a", 1)}, {inPackage("p", "a", 1), inPackage("q", "b", 2)}},
			said:   []string{"p v1", "q v2"},
			errors: "..",
		},
		"two may change places": {
			loads:  []load{{inPackage("p", "a", 1), inPackage("q", "b", 1)}, {inPackage("p", "b", 2), inPackage("q", "a", 2)}},
			said:   []string{"p v2", "q v2"},
			errors: "..",
		},
		"who cannot move stays, and so does who wanted its place": {
			loads: []load{
				{inPackage("p", "a", 1), inPackage("q", "b", 1), inPackage("r", "c", 1)},
				{inPackage("p", "b", 2), inPackage("q", "c", 2), inPackage("r", "c", 2)},
			},
			said:   []string{"p v1", "q v1", "r v2"},
			errors: "EE.",
		},
		"a name that comes twice counts once": {
			loads:  []load{{inPackage("p", "a", 1), inPackage("p", "a", 2)}},
			said:   []string{"p v1"},
			errors: ".E",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, engine.Options{})
			var results []engine.Result
			for _, load := range test.loads {
				results = e.Load(load)
			}
			if diff := cmp.Diff(test.said, said(t, e)); diff != "" {
				t.Errorf("the policies say (-want +got):\n%s", diff)
			}
			errors := ""
			for _, result := range results {
				errors += map[bool]string{true: ".", false: "E"}[result.Err == nil]
			}
			if errors != test.errors {
				t.Errorf("results %q, expected %q: %v", errors, test.errors, results)
			}
		})
	}
}

// Whatever is loaded in whatever order: a policy that once was good and is
// still listed always answers, no two hold one package, and digests tell sets apart.
func TestNoPolicyIsLostToAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, err := engine.New(engine.Options{Library: map[string]string{}, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		good := map[string]bool{}
		for range rapid.IntRange(1, 5).Draw(t, "loads") {
			var list []engine.Policy
			for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"p", "q", "r"}), 0, 3, rapid.ID).Draw(t, "names") {
				pkg := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "package of "+name)
				policy := broken(name)
				if pkg != "" {
					policy = inPackage(name, pkg, 1)
				}
				list = append(list, policy)
			}
			listed := map[string]bool{}
			for _, result := range e.Load(list) {
				listed[result.Name] = true
				if good[result.Name] && result.Digest == "" {
					t.Fatalf("policy %s was good once and is out: %v", result.Name, result.Err)
				}
				good[result.Name] = result.Digest != ""
			}
			for name := range good {
				good[name] = good[name] && listed[name]
			}
			var want []string
			for _, name := range []string{"p", "q", "r"} {
				if good[name] {
					want = append(want, name+" v1")
				}
			}
			var got []string
			for _, violation := range e.Evaluate(context.Background(), request()).Violations {
				got = append(got, violation.Message)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("the policies say (-want +got):\n%s", diff)
			}
		}
	})
}

func TestADigestTellsSetsApart(t *testing.T) {
	base := []engine.Policy{inPackage("p", "a", 1), inPackage("q", "b", 1)}
	digest := func(list ...engine.Policy) string { return loaded(t, engine.Options{}, list...).Digest() }
	if digest(base...) != digest(base[1], base[0]) {
		t.Error("the order of loading changes the digest")
	}
	warn := base[0]
	warn.Enforcement = "Warn"
	params := base[0]
	params.Params = []byte(`{"x": 1}`)
	seen := map[string]int{}
	for i, list := range [][]engine.Policy{{}, base, base[:1], {inPackage("p", "a", 2)}, {warn}, {params}} {
		if other, twice := seen[digest(list...)]; twice {
			t.Errorf("sets %d and %d have one digest", i, other)
		}
		seen[digest(list...)] = i
	}
}

func TestCheckKnowsWhoHoldsAPackage(t *testing.T) {
	e := loaded(t, engine.Options{}, inPackage("p", "a", 1))
	if err := e.Check(inPackage("q", "a", 1)); err == nil || !strings.Contains(err.Error(), "q.rego:1:1: package comity.policies.a is that of policy p already") {
		t.Errorf("got %v", err)
	}
	if err := e.Check(inPackage("p", "a", 2)); err != nil {
		t.Errorf("its own package: %v", err)
	}
	if diff := cmp.Diff([]string{"p v1"}, said(t, e)); diff != "" {
		t.Errorf("Check changed what is loaded:\n%s", diff)
	}
}

// Two policies that always have one version are never seen with two.
func TestASwapUnderLoadMixesNothing(t *testing.T) {
	const swaps = 30
	set := func(version int) []engine.Policy {
		return []engine.Policy{inPackage("p", "a", version), inPackage("q", "b", version)}
	}
	e := loaded(t, engine.Options{MaxConcurrent: 8}, set(0)...)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				verdict := e.Evaluate(context.Background(), request())
				if verdict.Outcome != decision.Denied || len(verdict.Violations) != 2 {
					t.Errorf("got %+v", verdict)
					return
				}
				p, q := verdict.Violations[0].Message, verdict.Violations[1].Message
				if strings.TrimPrefix(p, "p ") != strings.TrimPrefix(q, "q ") {
					t.Errorf("a mixed decision: %s and %s", p, q)
					return
				}
			}
		})
	}
	for version := range swaps {
		e.Load(set(version))
	}
	close(stop)
	readers.Wait()
}
