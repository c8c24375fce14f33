// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/v1alpha1"
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

func TestExplainListsTheRulesThatHeldAndWhatDidNotWithTheirValues(t *testing.T) {
	e := loaded(t, engine.Options{}, engine.Policy{Name: "ports", ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: explainedModule, Parameters: &apiextensionsv1.JSON{Raw: []byte(`{"forbidden": [22, 23]}`)}}})
	ctx, explanation := engine.Explain(t.Context())
	if verdict := e.Evaluate(ctx, request("b")); len(verdict.Violations) != 2 {
		t.Fatalf("verdict: %+v", verdict)
	}
	text := strings.Join(explanation(), "\n")
	for _, want := range []string{
		`ports.rego:5: deny contains {"msg": "port 22"}; with port = 22`, `deny contains {"msg": "port 23"}`,
		`ports.rego:12: not true: input.cluster == "z"`, ": about_export is true", "ports.rego:16: forbidden contains 23; with port = 23",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %q", want)
		}
	}
	if t.Failed() || strings.Contains(text, "engine.rego") {
		t.Errorf("it is:\n%s", text)
	}
}

func TestAnExplainedVerdictIsTheSame(t *testing.T) {
	e := loaded(t, engine.Options{}, baselines(t)...)
	in := request("b", "c")
	in.Scope.All, in.Scope.Clusters = false, []string{"x"}
	in.EffectiveScope = in.Scope
	plain := e.Evaluate(t.Context(), in)
	ctx, _ := engine.Explain(t.Context())
	if diff := cmp.Diff(plain, e.Evaluate(ctx, in)); diff != "" {
		t.Errorf("the verdict differs when it is explained (-plain +explained):\n%s", diff)
	}
}
