// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
)

// trial records what was tried, and returns the configured result.
type trial struct {
	mu     sync.Mutex
	tried  []string
	answer map[string]error
	// during is called during a trial.
	during func(ctx context.Context)
}

func (f *trial) try(ctx context.Context, list []engine.Policy) []error {
	if f.during != nil {
		f.during(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	results := make([]error, len(list))
	for i, p := range list {
		f.tried = append(f.tried, p.Name)
		results[i] = f.answer[p.Name]
	}
	return results
}

// names are what was tried since the last call.
func (f *trial) names() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := strings.Join(f.tried, " ")
	f.tried = nil
	return names
}

func TestAPolicyIsTriedOnceBeforeItIsCompiled(t *testing.T) {
	f := &trial{answer: map[string]error{"bad": errors.New("bad.rego:1:1: compiling the module takes too much")}}
	e := newEngine(t, engine.Options{Trial: f.try})
	good, bad := denying("good", "no", "true"), denying("bad", "no", "true")
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"a check tries", func() { _ = e.Check(good) }, "good"},
		{"what was checked is not tried again when it is stored", func() { e.Load([]engine.Policy{good}) }, ""},
		{"only what is new is tried", func() { e.Load([]engine.Policy{good, bad}) }, "bad"},
		{"a policy that failed is not tried at every load", func() { e.Load([]engine.Policy{good, bad}) }, ""},
		{"nor at a check", func() { _ = e.Check(bad) }, ""},
		{"until it is edited", func() { bad.Module += "\n"; e.Load([]engine.Policy{good, bad}) }, "bad"},
		{"another enforcement compiles nothing else", func() { good.Enforcement = "Warn"; e.Load([]engine.Policy{good, bad}) }, ""},
		{"all new ones are tried together", func() { e.Load([]engine.Policy{denying("x", "", "true"), denying("y", "", "true")}) }, "x y"},
	} {
		step.do()
		if got := f.names(); got != step.want {
			t.Errorf("%s: tried %q, want %q", step.name, got, step.want)
		}
	}
}

func TestAPolicyThatFailsItsTrialBlocksWhatItMatches(t *testing.T) {
	f := &trial{answer: map[string]error{"bad": errors.New("bad.rego:1:1: compiling the module takes too much")}}
	e := newEngine(t, engine.Options{Trial: f.try})
	// Were it compiled in spite of the trial, the type checker would have its own complaint.
	results := e.Load([]engine.Policy{{Name: "bad", Module: "package comity.policies.bad\n\ndeny := input.srevice\n"}})
	if results[0].Err == nil || !strings.Contains(results[0].Err.Error(), "takes too much") {
		t.Errorf("result: %v", results[0].Err)
	}
	verdict := e.Evaluate(t.Context(), request("b"))
	if verdict.Outcome != decision.NotEvaluated || !strings.Contains(verdict.Problem, "policy bad cannot be used as it is stored (bad.rego:1:1: compiling") {
		t.Errorf("verdict: %+v", verdict)
	}
}

func TestWithoutATrialTheNextLoadTriesAgain(t *testing.T) {
	f := &trial{answer: map[string]error{"p": fmt.Errorf("%w: this machine is busy", engine.ErrNoTrial)}}
	e := newEngine(t, engine.Options{Trial: f.try})
	p := denying("p", "no", "true")
	if err := e.Check(p); !errors.Is(err, engine.ErrNoTrial) {
		t.Errorf("check: %v", err)
	}
	if got := f.names(); got != "p" {
		t.Errorf("one check tried %q, want it once: it has to answer in time", got)
	}
	if results := e.Load([]engine.Policy{p}); !errors.Is(results[0].Err, engine.ErrNoTrial) {
		t.Errorf("load: %v", results[0].Err)
	}
	f.answer = nil
	if results := e.Load([]engine.Policy{p}); results[0].Err != nil {
		t.Errorf("load after the machine is not busy any more: %v", results[0].Err)
	}
}

func TestATrialDelaysNeitherEvaluationsNorALoad(t *testing.T) {
	f := &trial{}
	e := newEngine(t, engine.Options{Trial: f.try})
	good := denying("good", "no", "true")
	e.Load([]engine.Policy{good})
	begun, release := make(chan struct{}), make(chan struct{})
	f.during = func(context.Context) { close(begun); <-release }
	checked := make(chan error)
	go func() { checked <- e.Check(denying("slow", "no", "true")) }()
	<-begun
	if verdict := e.Evaluate(t.Context(), request("b")); verdict.Outcome != decision.Denied {
		t.Errorf("an evaluation during a trial: %+v", verdict)
	}
	loaded := make(chan struct{})
	go func() { e.Load([]engine.Policy{good}); close(loaded) }()
	select {
	case <-loaded:
	case <-time.After(time.Minute):
		t.Error("a load waits for the trial of another policy")
	}
	close(release)
	if err := <-checked; err != nil {
		t.Error(err)
	}
}

func TestACheckEndsInTimeForTheWebhook(t *testing.T) {
	f := &trial{during: func(ctx context.Context) {
		if deadline, has := ctx.Deadline(); !has || time.Until(deadline) > 2500*time.Millisecond {
			t.Errorf("a check may take until %v; the API server waits 3 s", deadline)
		}
	}}
	_ = newEngine(t, engine.Options{Trial: f.try}).Check(denying("p", "no", "true"))
	if f.names() != "p" {
		t.Error("nothing was tried")
	}
}

func TestWhatIsNestedTooDeepIsRefused(t *testing.T) {
	deep := func(open, shut string, n int) string {
		return "package comity.policies.p\n\ntest_x := " + strings.Repeat(open, n) + strings.Repeat(shut, n) + "\n\n" +
			"deny contains {\"msg\": \"x\"} if input.cluster == \"x\"\n"
	}
	for name, tc := range map[string]struct{ module, want string }{
		"deeper than people nest": {deep("[", "]", 100), ""},
		"brackets":                {deep("[", "]", 501), "p.rego:3:507: max parsing recursion depth exceeded"},
		"braces and brackets":     {deep("{[", "]}", 300), "p.rego:3:507: max parsing recursion depth exceeded"},
		"in strings":              {strings.ReplaceAll(deep("", "", 0), "\"x\"}", "\""+strings.Repeat("([{", 600)+"\"}"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := newEngine(t, engine.Options{}).Check(engine.Policy{Name: "p", Module: tc.module})
			switch {
			case tc.want == "" && err != nil && strings.Contains(err.Error(), "recursion"):
				t.Errorf("refused: %v", err)
			case tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.want)):
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

// TestTypesThatCannotBeComparedAreRefused: two such policies compile alone at once, and
// together never, since the compiler compares their answers, part by part.
func TestTypesThatCannotBeComparedAreRefused(t *testing.T) {
	doubling := func(name string) engine.Policy {
		var b strings.Builder
		fmt.Fprintf(&b, "package comity.policies.%s\n\ndeny contains {\"msg\": \"x\", \"more\": t40} if input.cluster == \"x\"\n\nt0 := {\"a\": input.cluster}\n", name)
		for i := range 40 {
			fmt.Fprintf(&b, "\nt%d := {\"l\": t%d, \"r\": t%d}\n", i+1, i, i)
		}
		return engine.Policy{Name: name, Module: b.String()}
	}
	done := make(chan []engine.Result, 1)
	e := newEngine(t, engine.Options{})
	go func() { done <- e.Load([]engine.Policy{doubling("a"), doubling("b")}) }()
	select {
	case results := <-done:
		for _, r := range results {
			if r.Err == nil || !strings.Contains(r.Err.Error(), "the entries of deny are nested values with more than 10000 parts") {
				t.Errorf("policy %s: %v", r.Name, r.Err)
			}
		}
	case <-time.After(time.Minute):
		t.Fatal("compiling them does not end")
	}
}
