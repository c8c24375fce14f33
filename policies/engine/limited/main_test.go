// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package limited_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/engine/limited"
)

// TestMain is the program that a Compiler runs.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == limited.Argument {
		if err := limited.Main(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// patience is for a machine that is busy with other tests.
const patience = 2 * time.Minute

func compiler(t *testing.T, limits limited.Limits) *limited.Compiler {
	t.Helper()
	c, err := limited.New(limited.Options{Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func try(t *testing.T, c *limited.Compiler, list ...engine.Policy) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return c.Try(ctx, list)
}

// policy denies if the cluster has a name that none has; rest follows.
func policy(name, rest string) engine.Policy {
	return engine.Policy{Name: name, Module: "package comity.policies." + name + "\n\n" +
		"deny contains {\"msg\": \"x\"} if input.cluster == \"never\"\n\n" + rest}
}

func lines(n int, line func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(line(i))
	}
	return b.String()
}

func nested(open, inner, shut string, n int) string {
	return strings.Repeat(open, n) + inner + strings.Repeat(shut, n)
}

// comprehensions are compiled in a time that grows six-fold and more with each level.
func comprehensions(name string) engine.Policy {
	return policy(name, "test_x := "+nested("[y | y := ", "1", "]", 30))
}

// quick are limits that a test reaches soon.
var quick = limited.Limits{CPU: 200 * time.Millisecond}

func TestAPolicyThatTakesTooMuchIsNamedWithTheLimit(t *testing.T) {
	for _, tc := range []struct {
		name   string
		limits limited.Limits
		rest   string
		want   string
	}{
		{"brackets 10,000 deep", limited.Limits{}, "test_x := " + nested("[", "1", "]", 10_000), "p.rego:5:507: max parsing recursion depth exceeded"},
		{"objects 10,000 deep", limited.Limits{}, "test_x := " + nested(`{"a": `, "1", "}", 10_000), "p.rego:5:1997: max parsing recursion depth exceeded"},
		{"calls 10,000 deep", limited.Limits{}, "test_x := " + nested("count([", "1", "])", 10_000), "p.rego:5:591: max parsing recursion depth exceeded"},
		{"negations 10,000 deep", limited.Limits{}, "test_x if " + strings.Repeat("not ", 10_000) + "true", "p.rego:5:15: unexpected not keyword"},
		{"sums 100,000 long", limited.Limits{CPU: time.Minute}, "test_x := " + strings.Repeat("1+", 100_000) + "1", "p.rego:5:1999: max parsing recursion depth exceeded"},
		{"comprehensions 30 deep", quick, "test_x := " + nested("[y | y := ", "1", "]", 30), "p.rego:1:1: compiling the module takes more than 200ms of CPU time"},
		{"20,000 rules", quick, strings.Repeat("test_a if 1\n", 20_000), "p.rego:1:1: compiling the module takes more than 200ms of CPU time"},
		{"10,000 else", quick, "test_x := 1 if false" + strings.Repeat(" else := 1 if false", 10_000), "p.rego:1:1: compiling the module takes more than 200ms of CPU time"},
		{
			"5,000 expressions in no order", quick, "test_x if {\n" + lines(5000, func(i int) string { return fmt.Sprintf("a%d = [a%d]\n", i, i+1) }) + "a5000 = 1\n}",
			"p.rego:1:1: compiling the module takes more than 200ms of CPU time",
		},
		{"more memory than there is", limited.Limits{Memory: 24 << 20, CPU: time.Minute}, "test_x := [" + strings.Repeat("1,", 120_000) + "1]", "p.rego:1:1: compiling the module takes more than 24 MiB of memory"},
		{"more stack than there is", limited.Limits{Stack: 64 << 10, CPU: time.Minute}, "test_x := " + strings.Repeat("1+", 900) + "1", "p.rego:1:1: compiling the module takes more than 64 KiB of stack"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := try(t, compiler(t, tc.limits), policy("p", tc.rest))[0]
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
			if errors.Is(err, engine.ErrNoTrial) {
				t.Error("it counts as no trial, though the policy is the cause")
			}
		})
	}
}

func TestOnePolicyThatEndsTheProcessFailsAlone(t *testing.T) {
	got := try(t, compiler(t, quick),
		policy("good", ""), comprehensions("slow"), policy("wrong", "test_x := input.srevice"), comprehensions("slow_too"), policy("last", ""))
	for i, want := range []string{"", "slow.rego:1:1: compiling the module takes", "wrong.rego:5:11: undefined ref: input.srevice", "slow_too.rego:1:1: compiling", ""} {
		if (got[i] == nil) != (want == "") || got[i] != nil && !strings.HasPrefix(got[i].Error(), want) {
			t.Errorf("policy %d: %v, want %q", i, got[i], want)
		}
	}
}

func TestWithoutTimeThereWasNoTrial(t *testing.T) {
	c := compiler(t, limited.Limits{CPU: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	got := c.Try(ctx, []engine.Policy{comprehensions("slow"), policy("next", "")})
	for i, err := range got {
		if !errors.Is(err, engine.ErrNoTrial) || !strings.Contains(err.Error(), "took too long") {
			t.Errorf("policy %d: %v", i, err)
		}
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("the answer came after %v, long after the deadline", took)
	}
}

func TestAProgramThatDoesNotStartIsNoTrial(t *testing.T) {
	c, err := limited.New(limited.Options{Executable: "/nonexistent"})
	if err != nil {
		t.Fatal(err)
	}
	if err := try(t, c, policy("p", ""))[0]; !errors.Is(err, engine.ErrNoTrial) || !strings.Contains(err.Error(), "start a process that compiles policies") {
		t.Errorf("got %v", err)
	}
}

func TestAPolicyIsCompiledWithAllThatItHas(t *testing.T) {
	p := policy("p", "limit := data.comity.params.p.limit\n\nwarn contains {\"msg\": \"x\"} if limit > 3\n")
	c := compiler(t, limited.Limits{})
	p.Params = []byte(`{"limit": 3}`)
	if err := try(t, c, p)[0]; err != nil {
		t.Errorf("with its parameter: %v", err)
	}
	p.Params = []byte(`{}`)
	if err := try(t, c, p)[0]; err == nil || !strings.Contains(err.Error(), "is not set; expected it in spec.parameters") {
		t.Errorf("without its parameter: %v", err)
	}
}

// TestTheAgentGoesOn is what the agent does with a policy that would block or end it:
// it is loaded with others, when policies are in use, and again after a restart.
func TestTheAgentGoesOn(t *testing.T) {
	c := compiler(t, quick)
	export := decision.Input{
		Operation: decision.Create, Cluster: "a",
		Object: &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}},
	}
	good := engine.Policy{Name: "good", Module: "package comity.policies.good\n\ndeny contains {\"msg\": \"good\"} if input.cluster == \"a\"\n"}
	for _, start := range []string{"first", "after a restart"} {
		t.Run(start, func(t *testing.T) {
			e, err := engine.New(engine.Options{Trial: c.Try, Timeout: patience})
			if err != nil {
				t.Fatal(err)
			}
			e.Load([]engine.Policy{good})
			loading := make(chan []engine.Result)
			go func() { loading <- e.Load([]engine.Policy{good, comprehensions("slow")}) }()
			evaluated := 0
			for done := false; !done; {
				select {
				case results := <-loading:
					done = true
					if results[0].Err != nil || results[1].Err == nil || !strings.Contains(results[1].Err.Error(), "of CPU time") {
						t.Errorf("results: %+v", results)
					}
				default:
					if verdict := e.Evaluate(t.Context(), export); verdict.Outcome != decision.Denied {
						t.Fatalf("while a policy is compiled: %+v", verdict)
					}
					evaluated++
				}
			}
			if evaluated < 10 {
				t.Errorf("%d evaluations while a policy was compiled; it blocks them", evaluated)
			}
			// What was tried is known: every change of a status loads all policies again.
			begin := time.Now()
			e.Load([]engine.Policy{good, comprehensions("slow")})
			if took := time.Since(begin); took > quick.CPU {
				t.Errorf("loading the same again took %v", took)
			}
		})
	}
}
