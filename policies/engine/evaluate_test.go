// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

func TestNothingLoadedYetIsNoPermission(t *testing.T) {
	e := newEngine(t, engine.Options{})
	want := decision.Verdict{Problem: "policies are not loaded yet"}
	if diff := cmp.Diff(want, e.Evaluate(t.Context(), request())); diff != "" {
		t.Error(diff)
	}
	if e.Digest() != "" {
		t.Error("the engine is loaded before Load")
	}
}

func TestNoPoliciesAllowEverything(t *testing.T) {
	e := loaded(t, engine.Options{})
	verdict := e.Evaluate(t.Context(), request())
	if verdict.Outcome != decision.Allowed || verdict.Digest == "" || e.Digest() == "" {
		t.Errorf("got %+v, digest %q", verdict, e.Digest())
	}
}

func TestNoExportIsNotEvaluated(t *testing.T) {
	e := loaded(t, engine.Options{}, denying("never", "no", "false"))
	if verdict := e.Evaluate(t.Context(), decision.Input{}); verdict.Outcome != decision.NotEvaluated || verdict.Problem == "" {
		t.Errorf("got %+v", verdict)
	}
}

func TestTheBaselineAnswers(t *testing.T) {
	scoped := func(ids ...string) func(*decision.Input) {
		return func(in *decision.Input) {
			in.Scope = decision.Scope{Clusters: ids}
			in.EffectiveScope = in.Scope
		}
	}
	tests := map[string]struct {
		change     func(*decision.Input)
		outcome    decision.Outcome
		violations []string // policy and reason
		warnings   []string
	}{
		"an ordinary export is allowed": {
			change:  func(*decision.Input) {},
			outcome: decision.Allowed,
		},
		"an export before its Service is allowed": {
			change:  func(in *decision.Input) { in.Service = nil },
			outcome: decision.Allowed,
		},
		"an ExternalName Service is refused": {
			change:     func(in *decision.Input) { in.Service.Spec.Type = corev1.ServiceTypeExternalName },
			outcome:    decision.Denied,
			violations: []string{"no-external-name InvalidServiceType"},
		},
		"an unknown cluster is refused": {
			change:     scoped("b", "x"),
			outcome:    decision.Denied,
			violations: []string{"export-scope ScopeNotAllowed"},
		},
		"an unknown cluster of an export that is merely stored is refused": {
			change: func(in *decision.Input) {
				scoped("b", "x")(in)
				in.Operation, in.UserInfo = decision.Audit, nil
			},
			outcome:    decision.Denied,
			violations: []string{"export-scope ScopeNotAllowed"},
		},
		"an unknown cluster of a published export is warned of": {
			change: func(in *decision.Input) {
				scoped("b", "x")(in)
				in.Operation, in.UserInfo, in.Published = decision.Audit, nil, true
			},
			outcome:  decision.Allowed,
			warnings: []string{"export-scope ScopeNotAllowed"},
		},
		"a namespace of another owner, in a cluster that the export names, is refused": {
			change: func(in *decision.Input) {
				scoped("b")(in)
				in.Namespace.Labels["comity.dev/identity"] = "shop-2"
			},
			outcome:    decision.Denied,
			violations: []string{"namespace-sameness NamespaceMismatch"},
		},
		"a namespace of another owner, in clusters that nobody named, is warned of": {
			change: func(in *decision.Input) {
				in.Namespace.Labels["comity.dev/identity"] = "shop-2"
			},
			outcome:  decision.Allowed,
			warnings: []string{"namespace-sameness NamespaceMismatch"}, // of both in one
		},
		"a named cluster without the namespace is warned of": {
			change: func(in *decision.Input) {
				scoped("b")(in)
				in.Peers["b"] = decision.Peer{Namespace: decision.PeerNamespace{Presence: decision.Absent}}
			},
			outcome:  decision.Allowed,
			warnings: []string{"namespace-sameness NamespaceMismatch"},
		},
		"a vanished namespace is no error": {
			change: func(in *decision.Input) {
				in.Namespace = nil
				in.Peers = nil
			},
			outcome: decision.Allowed,
		},
		"everything at once is told in order": {
			change: func(in *decision.Input) {
				scoped("a", "b", "x")(in)
				in.Namespace.Labels = nil
				in.Service.Spec.Type = corev1.ServiceTypeExternalName
			},
			outcome: decision.Denied,
			violations: []string{
				"export-scope ScopeNotAllowed", "export-scope ScopeNotAllowed",
				"namespace-sameness NamespaceMismatch", "no-external-name InvalidServiceType",
			},
		},
	}
	e := loaded(t, engine.Options{}, baselines(t)...)
	brief := func(violations []decision.Violation) (out []string) {
		for _, v := range violations {
			if v.Field == "" || v.Remedy == "" {
				t.Errorf("a complaint without field or remedy: %s", v)
			}
			out = append(out, v.Policy+" "+v.Reason)
		}
		return out
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := request("b", "c")
			test.change(&in)
			in.Destinations = destinations(in)
			verdict := e.Evaluate(t.Context(), in)
			if verdict.Outcome != test.outcome {
				t.Errorf("outcome %s, expected %s: %+v", verdict.Outcome, test.outcome, verdict)
			}
			if diff := cmp.Diff(test.violations, brief(verdict.Violations)); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.warnings, brief(verdict.Warnings)); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWhatFailsDoesNotAllow holds the ways in which OPA, used as it comes, says
// that all is well. What can be seen before is refused in compile_test.go.
func TestWhatFailsDoesNotAllow(t *testing.T) {
	tests := map[string]struct{ body, problem string }{
		"a builtin that fails": {
			`to_number(input.object.metadata.name) > 1`,
			"policy faulty: faulty.rego:4:2: to_number",
		},
		"a builtin that repeats what it was given": {
			`to_number("` + strings.Repeat("x", 100_000) + `") > 1`,
			"policy faulty: faulty.rego:4:2: to_number",
		},
		"a rule with two values": {
			`data.comity.policies.faulty.two == 1` + "\n}\n\ntwo := x if {\n\tsome x in [1, 2]",
			"policy faulty: faulty.rego:7:1:",
		},
		"a loop without end": {
			endless,
			"policy faulty: it took too long",
		},
		"an object without msg": {
			"true\n}\n\ndeny contains x if {\n\tx := json.unmarshal(`{\"message\": \"no\"}`)",
			`policy faulty: deny contains {"message": "no"}, which has no msg`,
		},
		"a key that entries do not have": {
			"true\n}\n\ndeny contains x if {\n\tx := json.unmarshal(`{\"msg\": \"no\", \"cluster\": [\"b\"]}`)",
			`policy faulty: deny contains an object with cluster; expected objects`,
		},
		"a message that is no string": {
			"true\n}\n\ndeny contains {\"msg\": x} if {\n\tx := json.unmarshal(`[1]`)",
			`policy faulty: deny contains an object whose msg is [1]; expected objects`,
		},
		"clusters that are none": {
			"true\n}\n\ndeny contains {\"msg\": \"no\", \"clusters\": x} if {\n\tx := [id | some id in input.scope.clusters]",
			`policy faulty: deny contains an object whose clusters is an empty list; expected objects`,
		},
		"clusters that are no strings": {
			"true\n}\n\ndeny contains {\"msg\": \"no\", \"clusters\": x} if {\n\tx := json.unmarshal(`[\"b\", 7]`)",
			`policy faulty: deny contains an object whose clusters has the element 7; expected objects`,
		},
		"a cluster that is none by its name": {
			"true\n}\n\ndeny contains {\"msg\": \"no\", \"clusters\": [\"\\u001b[2J\"]} if {\n\ttrue",
			`policy faulty: deny contains an object whose clusters has the element "\x1b[2J"; expected objects`,
		},
		"messages of megabytes": {
			"true\n}\n\ndeny contains {\"msg\": sprintf(\"%d" + strings.Repeat("x", 4000) + "\", [n])} if {\n\tsome n in numbers.range(1, 900)",
			`policy faulty: deny contains entries of more than 1024 KiB; expected fewer, or shorter ones`,
		},
		"clusters that are no list": {
			"true\n}\n\ndeny contains {\"msg\": \"no\", \"clusters\": x} if {\n\tx := json.unmarshal(`\"b\"`)",
			`policy faulty: deny contains an object whose clusters is "b"; expected objects`,
		},
		"a string in place of an object": {
			"true\n}\n\ndeny contains x if {\n\tx := input.object.metadata.labels.app",
			`policy faulty: deny contains "db"; expected objects`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e := loaded(t, engine.Options{Timeout: time.Second},
				denying("a_fine_one", "no", "false"), denying("faulty", "no", test.body), denying("z_fine_one", "no", "false"))
			verdict := e.Evaluate(t.Context(), request())
			if verdict.Outcome != decision.NotEvaluated || !strings.HasPrefix(verdict.Problem, test.problem) {
				t.Errorf("got %+v\nexpected NotEvaluated, %q...", verdict, test.problem)
			}
			if len(verdict.Problem) > 8<<10 {
				t.Errorf("the problem has %d bytes", len(verdict.Problem))
			}
			if diff := cmp.Diff([]string{"faulty"}, verdict.Failed); diff != "" {
				t.Errorf("the cause (-want +got):\n%s", diff)
			}
			e.Evaluate(t.Context(), request())
			select {
			case <-e.Failed():
			default:
				t.Error("nothing says that a policy failed")
			}
			want := map[string]engine.Failure{"faulty": {
				Count: 2, Object: "ServiceExport shop/db", Operation: decision.Create, Message: strings.TrimPrefix(verdict.Problem, "policy faulty: "),
			}}
			if diff := cmp.Diff(want, e.Failures()); diff != "" {
				t.Errorf("failures (-want +got):\n%s", diff)
			}
			e.Load([]engine.Policy{denying("faulty", "no", "false")})
			if failures := e.Failures(); len(failures) != 0 {
				t.Errorf("failures of a version that is no more: %v", failures)
			}
		})
	}
}

func TestEnforcementAndMatch(t *testing.T) {
	policy := func(enforcement v1alpha1.Enforcement, match *v1alpha1.Match) engine.Policy {
		p := denying("strict", "no", "true")
		p.Rego += "\nwarn contains {\"msg\": \"hm\"} if true\n"
		p.Enforcement, p.Match = enforcement, match
		return p
	}
	labeled := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	faulty := denying("strict", "no", "to_number(input.cluster) > 1")
	faulty.Match = &v1alpha1.Match{ObjectSelector: labeled("app", "web")}
	tests := map[string]struct {
		policy              engine.Policy
		operation           decision.Operation
		vanished            bool
		outcome             decision.Outcome
		violations, warning int
	}{
		"Deny refuses":                                  {policy(v1alpha1.Deny, nil), decision.Create, false, decision.Denied, 1, 1},
		"Deny is the default":                           {policy("", nil), decision.Create, false, decision.Denied, 1, 1},
		"Deny refuses in an audit":                      {policy(v1alpha1.Deny, nil), decision.Audit, false, decision.Denied, 1, 1},
		"Warn warns of everything":                      {policy(v1alpha1.Warn, nil), decision.Update, false, decision.Allowed, 0, 2},
		"Audit is silent to a requester":                {policy(v1alpha1.Audit, nil), decision.Create, false, decision.Allowed, 0, 0},
		"Audit tells in an audit":                       {policy(v1alpha1.Audit, nil), decision.Audit, false, decision.Allowed, 0, 2},
		"a selected object is asked about":              {policy("", &v1alpha1.Match{ObjectSelector: labeled("app", "db")}), decision.Create, false, decision.Denied, 1, 1},
		"another object is not":                         {policy("", &v1alpha1.Match{ObjectSelector: labeled("app", "web")}), decision.Create, false, decision.Allowed, 0, 0},
		"a selected namespace is asked about":           {policy("", &v1alpha1.Match{NamespaceSelector: labeled("comity.dev/identity", "shop-1")}), decision.Create, false, decision.Denied, 1, 1},
		"another namespace is not":                      {policy("", &v1alpha1.Match{NamespaceSelector: labeled("comity.dev/identity", "x")}), decision.Create, false, decision.Allowed, 0, 0},
		"a vanished namespace exempts from nothing":     {policy("", &v1alpha1.Match{NamespaceSelector: labeled("comity.dev/identity", "x")}), decision.Create, true, decision.Denied, 1, 1},
		"a policy that does not match cannot fail this": {faulty, decision.Create, false, decision.Allowed, 0, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := request("b")
			in.Operation = test.operation
			if test.vanished {
				in.Namespace = nil
			}
			verdict := loaded(t, engine.Options{}, test.policy).Evaluate(t.Context(), in)
			if verdict.Outcome != test.outcome || len(verdict.Violations) != test.violations || len(verdict.Warnings) != test.warning {
				t.Errorf("got %+v", verdict)
			}
		})
	}
}

func TestAnUpdateMatchesByTheLabelsBeforeItToo(t *testing.T) {
	for _, tc := range []struct {
		name     string
		now, was string // value of label app; "" for none
		outcome  decision.Outcome
	}{
		{"a label that is dropped", "", "db", decision.Denied},
		{"a label that is changed", "web", "db", decision.Denied},
		{"a label that is set", "db", "", decision.Denied},
		{"a label that stays", "db", "db", decision.Denied},
		{"a label that never was there", "web", "", decision.Allowed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			labeled := func(value string) *mcsv1beta1.ServiceExport {
				export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}
				if value != "" {
					export.Labels = map[string]string{"app": value}
				}
				return export
			}
			in := request()
			in.Operation, in.Object, in.OldObject = decision.Update, labeled(tc.now), labeled(tc.was)
			for _, policy := range []engine.Policy{denying("p", "no", "true"), broken("p")} {
				e := newEngine(t, engine.Options{})
				e.Load([]engine.Policy{matching(policy, "app", "db")})
				if got := e.Evaluate(t.Context(), in).Outcome; (got == decision.Allowed) != (tc.outcome == decision.Allowed) {
					t.Errorf("got %s, want %s", got, tc.outcome)
				}
			}
		})
	}
}

// A selector narrows the scope that is published, so what a cluster outside of it
// publishes is no reason for a refusal.
func TestTheBaselineDecidesOnTheEffectiveScope(t *testing.T) {
	in := request("b", "c")
	in.Scope = decision.Scope{Clusters: []string{"b", "c"}}
	in.EffectiveScope = in.Scope
	in.Peers["c"] = decision.Peer{Namespace: decision.PeerNamespace{Presence: decision.Present, Labels: map[string]string{"comity.dev/identity": "other"}}}
	in.Destinations = destinations(in)
	e := loaded(t, engine.Options{}, baselines(t)...)
	if verdict := e.Evaluate(t.Context(), in); verdict.Outcome != decision.Denied {
		t.Errorf("towards b and c: got %+v, want a denial because of c", verdict)
	}
	in.EffectiveScope = decision.Scope{Clusters: []string{"b"}}
	in.Destinations = destinations(in)
	if verdict := e.Evaluate(t.Context(), in); verdict.Outcome != decision.Allowed {
		t.Errorf("towards b alone: got %+v, want Allowed", verdict)
	}
}

func TestParametersAreThePolicysOwn(t *testing.T) {
	policy := func(name, params string) engine.Policy {
		p := denying(name, name, fmt.Sprintf(`input.object.metadata.name in data.comity.params.%s.names`, name))
		p.Parameters = &apiextensionsv1.JSON{Raw: []byte(params)}
		return p
	}
	e := loaded(t, engine.Options{}, policy("a", `{"names": ["db"]}`), policy("b", `{"names": ["web"]}`))
	verdict := e.Evaluate(t.Context(), request())
	if len(verdict.Violations) != 1 || verdict.Violations[0].Policy != "a" {
		t.Errorf("got %+v", verdict)
	}
}

func TestTheVerdictIsTheSameEveryTime(t *testing.T) {
	var list []engine.Policy
	for i := range 10 {
		list = append(list, denying(fmt.Sprintf("p%d", i), "no", fmt.Sprintf("some x in numbers.range(1, 9)\n\tx > %d", i)))
		list[i].Rego = strings.Replace(list[i].Rego, `"msg": "no"`, `"msg": sprintf("no %d", [x])`, 1)
	}
	in := request("b", "c")
	var want decision.Verdict
	for i := range 100 {
		// Another order of loading, too.
		list = append(list[1:], list[0])
		got := loaded(t, engine.Options{}, list...).Evaluate(t.Context(), in)
		if i == 0 {
			want = got
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	}
	if len(want.Violations) != 45 {
		t.Errorf("%d violations, expected 45", len(want.Violations))
	}
}

// endless is a body that takes no memory.
const endless = "some x in numbers.range(1, 5000)\n\tsome y in numbers.range(1, 5000)\n\tsome z in numbers.range(1, 5000)\n\tx + y + z < 0"

// twoValues fails in every evaluation: a rule has two values.
func twoValues(name string) engine.Policy {
	p := denying(name, "no", `tier == "a"`)
	p.Rego += "\ntier := \"a\" if input.cluster\n\ntier := \"b\" if input.cluster\n"
	return p
}

// FAULT 46: a policy that fails has the effect of its enforcement, and hides nothing of others.
func TestAPolicyThatFailsAnswersForItself(t *testing.T) {
	enforced := func(p engine.Policy, by v1alpha1.Enforcement) engine.Policy { p.Enforcement = by; return p }
	slow := denying("slow", "no", endless)
	for name, tc := range map[string]struct {
		policies  []engine.Policy
		operation decision.Operation
		outcome   decision.Outcome
		denies    []string
		failed    []string // as the verdict has it
		failures  []string // as the status of the policies has it
	}{
		"Audit, in a request, is not evaluated":   {[]engine.Policy{enforced(twoValues("p"), v1alpha1.Audit)}, decision.Create, decision.Allowed, nil, nil, nil},
		"Audit, in an audit":                      {[]engine.Policy{enforced(twoValues("p"), v1alpha1.Audit)}, decision.Audit, decision.Allowed, nil, nil, []string{"p"}},
		"Audit, in an audit that others deny":     {[]engine.Policy{enforced(twoValues("p"), v1alpha1.Audit), denying("a", "no", "true"), denying("z", "no", "true")}, decision.Audit, decision.Denied, []string{"a", "z"}, nil, []string{"p"}},
		"Warn refuses nothing":                    {[]engine.Policy{enforced(twoValues("p"), v1alpha1.Warn), denying("a", "no", "false")}, decision.Create, decision.Allowed, nil, nil, []string{"p"}},
		"Warn hides no denial":                    {[]engine.Policy{enforced(twoValues("p"), v1alpha1.Warn), denying("z", "no", "true")}, decision.Create, decision.Denied, []string{"z"}, nil, []string{"p"}},
		"Deny, alone":                             {[]engine.Policy{twoValues("p"), denying("a", "no", "false")}, decision.Create, decision.NotEvaluated, nil, []string{"p"}, []string{"p"}},
		"Deny, beside the denial of another":      {[]engine.Policy{twoValues("p"), denying("z", "no", "true")}, decision.Update, decision.Denied, []string{"z"}, []string{"p"}, []string{"p"}},
		"Deny, in an audit, withdraws nothing":    {[]engine.Policy{twoValues("p"), denying("a", "no", "false")}, decision.Audit, decision.NotEvaluated, nil, []string{"p"}, []string{"p"}},
		"two that fail are both named":            {[]engine.Policy{twoValues("q"), twoValues("p")}, decision.Create, decision.NotEvaluated, nil, []string{"p", "q"}, []string{"p", "q"}},
		"one that is stopped hides no denial":     {[]engine.Policy{slow, denying("z", "no", "true")}, decision.Create, decision.Denied, []string{"z"}, []string{"slow"}, []string{"slow"}},
		"the slow one is blamed, and not another": {[]engine.Policy{slow, denying("a", "no", "false"), enforced(denying("z", "no", "false"), v1alpha1.Warn)}, decision.Create, decision.NotEvaluated, nil, []string{"slow"}, []string{"slow"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := loaded(t, engine.Options{Timeout: time.Second}, tc.policies...)
			in := request()
			in.Operation = tc.operation
			v := e.Evaluate(t.Context(), in)
			var denies []string
			for _, violation := range v.Violations {
				denies = append(denies, violation.Policy)
			}
			got := [][]string{denies, v.Failed, slices.Sorted(maps.Keys(e.Failures()))}
			if diff := cmp.Diff([][]string{tc.denies, tc.failed, tc.failures}, got); diff != "" || v.Outcome != tc.outcome || (v.Problem == "") != (tc.failed == nil) {
				t.Errorf("%s (%s); who denies, who failed, failures (-want +got):\n%s", v.Outcome, v.Problem, diff)
			}
		})
	}
}

// The time is that of the slow one.
func TestTimeIsThatOfThePolicyThatTookIt(t *testing.T) {
	registry := prometheus.NewRegistry()
	e := loaded(t, engine.Options{Timeout: 300 * time.Millisecond, Registerer: registry}, denying("b", "no", endless),
		denying("a", "no", "some x in numbers.range(1, 2000)\n\tx < 0"), denying("c", "no", "some x in numbers.range(1, 2000)\n\tx < 0"))
	if v := e.Evaluate(t.Context(), request()); !slices.Equal(v.Failed, []string{"b"}) {
		t.Errorf("failed: %v (%s)", v.Failed, v.Problem)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			h, policy := m.GetHistogram(), m.GetLabel()[1].GetValue()
			if h == nil {
				continue
			}
			if slow := h.GetSampleSum() >= .3; h.GetSampleCount() != 1 || slow != (policy == "b") {
				t.Errorf("policy %s: %d evaluations, %fs", policy, h.GetSampleCount(), h.GetSampleSum())
			}
		}
	}
}

// FAULT 45: many that are slow share the time of the request, so that others have theirs.
func TestSlowPoliciesLeaveTimeForOthers(t *testing.T) {
	list := []engine.Policy{denying("z", "no", "true")}
	for i := range 8 {
		list = append(list, denying(fmt.Sprintf("slow_%d", i), "no", endless))
	}
	e := loaded(t, engine.Options{Timeout: time.Second}, list...)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	if v := e.Evaluate(ctx, request()); v.Outcome != decision.Denied || len(v.Failed) != 8 {
		t.Errorf("got %+v", v)
	}
}

// Nobody waits for an audit, so that a busy machine does not become a change of status.
func TestAnAuditHasMoreTimeThanARequest(t *testing.T) {
	const timeout = 50 * time.Millisecond
	e := loaded(t, engine.Options{Timeout: timeout}, denying("slow", "no", "some x in numbers.range(1, 5000)\n\tsome y in numbers.range(1, 5000)\n\tx + y < 0"))
	in := request()
	in.Operation, in.UserInfo = decision.Audit, nil
	begin := time.Now()
	verdict := e.Evaluate(t.Context(), in)
	if took := time.Since(begin); verdict.Outcome != decision.NotEvaluated || took < 3*timeout {
		t.Errorf("after %s: %+v", took, verdict)
	}
	if failed := e.Failures()["slow"]; failed.Count != 1 {
		t.Errorf("%d failures of one audit: %+v", failed.Count, failed)
	}
}

func TestTheRequestsDeadlineCounts(t *testing.T) {
	e := loaded(t, engine.Options{Timeout: time.Minute},
		denying("slow", "no", "some x in numbers.range(1, 1000000000)\n\tx < 0"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if verdict := e.Evaluate(ctx, request()); !strings.Contains(verdict.Problem, "policy slow: it took too long") {
		t.Errorf("got %+v", verdict)
	}
	if verdict := e.Evaluate(ctx, request()); verdict.Outcome != decision.NotEvaluated {
		t.Errorf("got %+v", verdict)
	}
}
