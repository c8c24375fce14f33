// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// anyPolicy is a policy of this name: broken, or in one of a few packages, for some
// exports or for all.
func anyPolicy(t *rapid.T, name string) engine.Policy {
	policy := broken(name)
	if pkg := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "package of "+name); pkg != "" {
		policy = inPackage(name, pkg, rapid.IntRange(1, 2).Draw(t, "version of "+name))
	}
	if value := rapid.SampledFrom([]string{"", "db", "web"}).Draw(t, "match of "+name); value != "" {
		policy = matching(policy, "app", value)
	}
	policy.Enforcement = rapid.SampledFrom([]v1alpha1.Enforcement{"Deny", "Warn", "Audit"}).Draw(t, "enforcement of "+name)
	return policy
}

func TestWithAnswersAsTheEngineDoesOnceThePolicyIsLoaded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []engine.Policy
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"p", "q", "r"}), 0, 3, rapid.ID).Draw(t, "names") {
			list = append(list, anyPolicy(t, name))
		}
		e := newEngine(t, engine.Options{Required: []string{"q"}})
		e.Load(list)
		before := e.Digest()

		name := rapid.SampledFrom([]string{"p", "q", "s"}).Draw(t, "changed")
		at := slices.IndexFunc(list, func(p engine.Policy) bool { return p.Name == name })
		changed := slices.Clone(list)
		policy := anyPolicy(t, name)
		change, err := e.Change(policy)
		other, _ := e.With(policy)
		if at < 0 {
			at = len(changed)
			changed = append(changed, policy)
		}
		changed[at] = policy
		if e.Digest() != before {
			t.Fatal("the engine itself changed")
		}
		web := request()
		web.Object = web.Object.DeepCopy()
		web.Object.Labels = map[string]string{"app": "web"}
		answers := func() (out []decision.Verdict) {
			for _, in := range []decision.Input{request(), web} {
				out = append(out, e.Evaluate(context.Background(), in))
			}
			return out
		}
		was := answers()
		var may []bool
		for _, in := range []decision.Input{request(), web} {
			on, err := engine.Writer{}.Export(in)
			if err != nil {
				t.Fatal(err)
			}
			compared, err := change.Compare(context.Background(), on)
			if err != nil {
				t.Fatal(err)
			}
			may = append(may, compared.After.Digest != "")
		}
		results := e.Load(changed)
		is := answers()
		if (err != nil) != (results[at].Err != nil) {
			t.Fatalf("the error is %v, and once it is loaded %v", err, results[at].Err)
		}
		if other.Digest() != e.Digest() {
			t.Fatal("the digests differ")
		}
		for i, in := range []decision.Input{request(), web} {
			if diff := cmp.Diff(is[i], other.Evaluate(context.Background(), in)); diff != "" {
				t.Fatalf("verdict (-once it is loaded +predicted):\n%s", diff)
			}
			if diff := cmp.Diff(was[i], is[i], cmpopts.IgnoreFields(decision.Verdict{}, "Digest", "Matched")); diff != "" && !may[i] {
				t.Fatalf("it says that nothing changes:\n%s", diff)
			}
		}
	})
}

func TestAnEngineWithAPolicyTakesNothingFromTheOtherOne(t *testing.T) {
	failing := engine.Policy{Name: "q", ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: `package comity.policies.q

deny contains {"msg": "no"} if to_number(input.object.metadata.name) > 1
`}}
	slow := denying("p", "no", endless)
	e := loaded(t, engine.Options{Timeout: time.Second}, failing, inPackage("p", "p", 1))
	other, err := e.With(inPackage("p", "p", 2)) // it shares what q was compiled to
	if err != nil {
		t.Fatal(err)
	}
	if verdict := other.Evaluate(t.Context(), request()); verdict.Outcome != decision.Denied || !slices.Equal(verdict.Failed, []string{"q"}) || len(other.Failures()) != 1 {
		t.Fatalf("got %+v and failures %v", verdict, other.Failures())
	}
	if failures := e.Failures(); len(failures) > 0 {
		t.Errorf("a preview is in the failures of policies in use: %v", failures)
	}
	select {
	case <-e.Failed():
		t.Error("a preview is reported as a failure")
	default:
	}

	e = loaded(t, engine.Options{Timeout: time.Second}, inPackage("q", "q", 1))
	if other, err = e.With(slow); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		other.Evaluate(context.Background(), request())
	}()
	for asked := 0; ; asked++ {
		if verdict := e.Evaluate(t.Context(), request()); verdict.Outcome != decision.Denied {
			t.Fatalf("while another engine evaluates: %+v", verdict)
		}
		select {
		case <-done:
			if asked == 0 {
				t.Error("nothing was asked meanwhile")
			}
			return
		default:
		}
	}
}

// All policies match, which is one rule of the generated module.
func TestWhatIsDeniedIsNoWarning(t *testing.T) {
	verdict := loaded(t, engine.Options{}, inPackage("p", "a", 1)).Evaluate(t.Context(), request())
	if len(verdict.Violations) != 1 || len(verdict.Warnings) != 0 {
		t.Errorf("got violations %v and warnings %v", verdict.Violations, verdict.Warnings)
	}
}
