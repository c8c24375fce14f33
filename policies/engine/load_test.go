// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// inPackage is a policy that denies with its name and the version.
func inPackage(name, pkg string, version int) engine.Policy {
	policy := denying(pkg, fmt.Sprintf("%s v%d", name, version), "true")
	policy.Name = name
	return policy
}

// broken is a policy that does not compile.
func broken(name string) engine.Policy {
	return engine.Policy{Name: name, ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: "no rego"}}
}

// matching is the policy for exports with this label alone.
func matching(policy engine.Policy, label, value string) engine.Policy {
	policy.Match = &v1alpha1.Match{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{label: value}}}
	return policy
}

// said is what the policies answer, in order.
func said(t testing.TB, e *engine.Engine) []string {
	t.Helper()
	return answersOf(e.Evaluate(context.Background(), request()))
}

// answersOf are the messages of violations, or the names of the policies that keep
// the export from being evaluated.
func answersOf(verdict decision.Verdict) []string {
	out := []string{}
	for _, name := range verdict.Failed {
		out = append(out, name+" failed")
	}
	for _, violation := range verdict.Violations {
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
		"FAULT 34: a broken policy blocks, whatever it was before": {
			loads:  []load{{inPackage("p", "a", 1)}, {broken("p")}},
			said:   []string{"p failed"},
			errors: "E",
		},
		"FAULT 34: a policy that never was good blocks as well": {
			loads:  []load{{broken("p")}},
			said:   []string{"p failed"},
			errors: "E",
		},
		"for as long as it is broken": {
			loads:  []load{{inPackage("p", "a", 1)}, {broken("p")}, {broken("p"), broken("q")}},
			said:   []string{"p failed", "q failed"},
			errors: "EE",
		},
		"and is mended": {
			loads:  []load{{inPackage("p", "a", 1)}, {broken("p")}, {inPackage("p", "a", 2)}},
			said:   []string{"p v2"},
			errors: ".",
		},
		"a denial holds without the policy that is broken": {
			loads:  []load{{broken("p"), inPackage("q", "b", 1)}},
			said:   []string{"q v1"},
			errors: "E.",
		},
		"a broken policy that is deleted blocks nothing": {
			loads: []load{{broken("p")}, {}},
			said:  []string{},
		},
		"a broken policy that only warns blocks nothing": {
			loads:  []load{{{Name: "p", ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: "no rego", Enforcement: "Warn"}}}},
			said:   []string{},
			errors: "E",
		},
		"nor does one that only audits": {
			loads:  []load{{{Name: "p", ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: "no rego", Enforcement: "Audit"}}}},
			said:   []string{},
			errors: "E",
		},
		"a broken policy blocks what it matches": {
			loads:  []load{{matching(broken("p"), "app", "db")}},
			said:   []string{"p failed"},
			errors: "E",
		},
		"and nothing else": {
			loads:  []load{{matching(broken("p"), "app", "web")}},
			said:   []string{},
			errors: "E",
		},
		"a selector that cannot be read matches everything": {
			loads:  []load{{matching(inPackage("p", "a", 1), "app", "not a value!")}},
			said:   []string{"p failed"},
			errors: "E",
		},
		"of two with one package the first has it": {
			loads:  []load{{inPackage("q", "a", 1), inPackage("p", "a", 1)}},
			said:   []string{"q v1"},
			errors: ".E",
		},
		"whichever held it before, because another replica would not know": {
			loads:  []load{{inPackage("q", "a", 1)}, {inPackage("p", "a", 1), inPackage("q", "a", 2)}},
			said:   []string{"p v1"},
			errors: ".E",
		},
		"a broken policy holds no package": {
			loads:  []load{{inPackage("q", "a", 1)}, {broken("q"), inPackage("p", "a", 1)}},
			said:   []string{"p v1"},
			errors: "E.",
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

func TestFAULT34ARequiredPolicyThatDoesNotExistBlocksEveryExport(t *testing.T) {
	elsewhere := matching(denying("p", "no", "true"), "app", "web")
	for _, tc := range []struct {
		name    string
		list    []engine.Policy
		outcome decision.Outcome
		failed  []string
		problem string
	}{
		{"all policies are deleted", nil, decision.NotEvaluated, []string{"p", "q"},
			"policy p: it does not exist, and this cluster requires it (--require-policies); policy q: it does not exist, and this cluster requires it (--require-policies)"},
		{"one is there", []engine.Policy{elsewhere}, decision.NotEvaluated, []string{"q"}, "policy q: it does not exist, and this cluster requires it (--require-policies)"},
		{"one is there and cannot be used", []engine.Policy{elsewhere, broken("q")}, decision.NotEvaluated, []string{"q"}, "policy q cannot be used as it is stored (q.rego:1:1: "},
		{"both are there", []engine.Policy{elsewhere, denying("q", "no", "false")}, decision.Allowed, nil, ""},
		{"another denies", []engine.Policy{denying("r", "no", "true")}, decision.Denied, nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEngine(t, engine.Options{Required: []string{"q", "p", "q"}})
			results := e.Load(tc.list)
			if len(results) != len(tc.list) {
				t.Errorf("%d results of %d policies", len(results), len(tc.list))
			}
			verdict := e.Evaluate(t.Context(), request())
			if verdict.Outcome != tc.outcome || !strings.HasPrefix(verdict.Problem, tc.problem) {
				t.Errorf("got %s because %q, want %s because %q", verdict.Outcome, verdict.Problem, tc.outcome, tc.problem)
			}
			if diff := cmp.Diff(tc.failed, verdict.Failed); diff != "" {
				t.Errorf("failed (-want +got):\n%s", diff)
			}
			if e.Digest() == loaded(t, engine.Options{}).Digest() {
				t.Error("the digest is that of an engine without policies")
			}
		})
	}
}

// FAULT 34: what an engine answers depends on the last list alone, so that a replica
// that has just started answers as one that has seen all of them.
func TestWhatWasLoadedBeforeCountsForNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := func() (list []engine.Policy) {
			for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"p", "q", "r"}), 0, 3, rapid.ID).Draw(t, "names") {
				policy := broken(name)
				if pkg := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "package of "+name); pkg != "" {
					policy = inPackage(name, pkg, 1)
				}
				policy.Enforcement = rapid.SampledFrom([]v1alpha1.Enforcement{"Deny", "Warn"}).Draw(t, "enforcement of "+name)
				list = append(list, policy)
			}
			return list
		}
		old, fresh := newEngine(t, engine.Options{}), newEngine(t, engine.Options{})
		for range rapid.IntRange(0, 4).Draw(t, "loads") {
			old.Load(list())
		}
		last := list()
		old.Load(last)
		fresh.Load(last)
		if diff := cmp.Diff(fresh.Evaluate(context.Background(), request()), old.Evaluate(context.Background(), request())); diff != "" {
			t.Fatalf("a new replica and an old one differ (-new +old):\n%s", diff)
		}
	})
}

func TestADigestTellsSetsApart(t *testing.T) {
	base := []engine.Policy{inPackage("p", "a", 1), inPackage("q", "b", 1)}
	digest := func(list ...engine.Policy) string {
		e := newEngine(t, engine.Options{})
		e.Load(list)
		return e.Digest()
	}
	if digest(base...) != digest(base[1], base[0]) {
		t.Error("the order of loading changes the digest")
	}
	warn := base[0]
	warn.Enforcement = "Warn"
	params := base[0]
	params.Parameters = &apiextensionsv1.JSON{Raw: []byte(`{"x": 1}`)}
	seen := map[string]int{}
	for i, list := range [][]engine.Policy{{}, base, base[:1], {inPackage("p", "a", 2)}, {warn}, {params}, {broken("p")}, {broken("p"), base[1]}} {
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
	const swaps = 100
	set := func(version int) []engine.Policy {
		return []engine.Policy{inPackage("p", "a", version), inPackage("q", "b", version)}
	}
	e := loaded(t, engine.Options{}, set(0)...)
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
