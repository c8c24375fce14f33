// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/comity-mcs/comity/policies/engine"
)

const explainedModule = `package comity.policies.ports

import data.comity.lib

deny contains {"msg": sprintf("port %d", [port])} if {
	lib.about_export
	some port in forbidden
	input.service.metadata.labels.app == "db"
}

deny contains {"msg": "never"} if {
	input.cluster == "z"
	count(forbidden) > 1
}

forbidden contains port if some port in data.comity.params.ports.forbidden
`

func TestExplainListsTheRulesThatHeldWithTheirValues(t *testing.T) {
	policy := engine.Policy{Name: "ports", Module: explainedModule, Params: []byte(`{"forbidden": [22, 23]}`)}
	other := denying("other", "no", `input.cluster == "z"`)
	e := loaded(t, engine.Options{}, policy, other)
	ctx, explanation := engine.Explain(t.Context())
	verdict := e.Evaluate(ctx, request("b"))
	if len(verdict.Violations) != 2 {
		t.Fatalf("verdict: %+v", verdict)
	}
	read := func(name, value string) engine.Binding { return engine.Binding{Name: name, Value: value} }
	param := func(i, port string) engine.Binding { return read("data.comity.params.ports.forbidden["+i+"]", port) }
	app := read("input.service.metadata.labels.app", `"db"`)
	deny := func(port string) engine.Rule {
		return engine.Rule{
			Place: "ports.rego:5", Name: "deny", Decides: true, Entry: true, Value: `{"msg": "port ` + port + `"}`,
			Bindings: []engine.Binding{app, read("port", port)},
		}
	}
	forbidden := func(i, port string) engine.Rule {
		return engine.Rule{Place: "ports.rego:16", Name: "forbidden", Entry: true, Value: port, Bindings: []engine.Binding{param(i, port), read("port", port)}}
	}
	want := map[string][]engine.Rule{"ports": {
		deny("22"), deny("23"), forbidden("0", "22"), forbidden("1", "23"),
		{Place: "lib/lib.rego:18", Name: "about_export", Bindings: []engine.Binding{read("input.subject", `"ServiceExport"`)}},
	}}
	ignoreOrder := cmpopts.SortSlices(func(a, b engine.Rule) bool { return a.Place+a.Value < b.Place+b.Value })
	// The library may change.
	got := explanation().Rules
	for i, rule := range got["ports"] {
		if rule.Name == "about_export" {
			got["ports"][i].Place = "lib/lib.rego:18"
		}
	}
	if diff := cmp.Diff(want, got, ignoreOrder, cmpopts.IgnoreUnexported(engine.Rule{})); diff != "" {
		t.Errorf("explanation (-want +got):\n%s", diff)
	}
}

func TestAnExplainedVerdictIsTheSame(t *testing.T) {
	e := loaded(t, engine.Options{}, baselines(t)...)
	in := request("b", "c")
	in.Scope.All, in.Scope.Clusters = false, []string{"x"}
	in.EffectiveScope = in.Scope
	plain := e.Evaluate(t.Context(), in)
	ctx, explanation := engine.Explain(t.Context())
	if diff := cmp.Diff(plain, e.Evaluate(ctx, in)); diff != "" {
		t.Errorf("the verdict differs when it is explained (-plain +explained):\n%s", diff)
	}
	for policy, rules := range explanation().Rules {
		for i := 1; i < len(rules); i++ {
			if cmp.Equal(rules[i-1], rules[i], cmpopts.IgnoreUnexported(engine.Rule{})) {
				t.Errorf("policy %s: rule %s is listed twice", policy, rules[i].Place)
			}
		}
	}
}
