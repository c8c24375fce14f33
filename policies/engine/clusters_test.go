// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// limitedTo is a policy that denies the export to some clusters, given as Rego.
func limitedTo(name, clusters string, change ...func(*engine.Policy)) engine.Policy {
	p := engine.Policy{Name: name, ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: fmt.Sprintf(`package comity.policies.%s

deny contains {"msg": "it stays here", "clusters": %s, "remedy": "None."} if true
`, name, clusters)}}
	for _, c := range change {
		c(&p)
	}
	return p
}

func TestADenialForClustersExcludesTheseInAnAudit(t *testing.T) {
	enforce := func(e v1alpha1.Enforcement) func(*engine.Policy) {
		return func(p *engine.Policy) { p.Enforcement = e }
	}
	for name, tc := range map[string]struct {
		policies []engine.Policy
		request  decision.Outcome
		audit    decision.Outcome
		excluded []string
		warnings int // in an audit
	}{
		"one policy": {[]engine.Policy{limitedTo("p", `["c", "b", "c"]`)}, decision.Denied, decision.Allowed, []string{"b", "c"}, 0},
		"clusters that are computed": {[]engine.Policy{limitedTo("p", `[id | some id, _ in input.peers; id != "b"]`)},
			decision.Denied, decision.Allowed, []string{"c"}, 0},
		"a cluster that is no member":                 {[]engine.Policy{limitedTo("p", `["mars"]`)}, decision.Denied, decision.Allowed, []string{"mars"}, 0},
		"two policies":                                {[]engine.Policy{limitedTo("p", `["b"]`), limitedTo("q", `["c"]`)}, decision.Denied, decision.Allowed, []string{"b", "c"}, 0},
		"another policy denies it to all":             {[]engine.Policy{limitedTo("p", `["b"]`), denying("q", "no", "true")}, decision.Denied, decision.Denied, nil, 0},
		"with enforcement Warn they are shown alone":  {[]engine.Policy{limitedTo("p", `["b"]`, enforce(v1alpha1.Warn))}, decision.Allowed, decision.Allowed, nil, 1},
		"with enforcement Audit they are shown alone": {[]engine.Policy{limitedTo("p", `["b"]`, enforce(v1alpha1.Audit))}, decision.Allowed, decision.Allowed, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			e := loaded(t, engine.Options{}, tc.policies...)
			in := request("b", "c")
			if got := e.Evaluate(t.Context(), in); got.Outcome != tc.request || got.Excluded != nil {
				t.Errorf("a request: %+v, want %v", got, tc.request)
			}
			in.Operation, in.UserInfo = decision.Audit, nil
			got := e.Evaluate(t.Context(), in)
			if got.Outcome != tc.audit || len(got.Warnings) != tc.warnings {
				t.Errorf("an audit: %+v, want %v", got, tc.audit)
			}
			if diff := cmp.Diff(tc.excluded, got.Excluded); diff != "" {
				t.Errorf("excluded (-want +got):\n%s", diff)
			}
			if len(tc.excluded) > 0 && len(got.Violations) != len(tc.policies) {
				t.Errorf("it does not say why: %+v", got.Violations)
			}
		})
	}
}

// A policy that cannot be used makes the rest unknown, not what another forbids.
func TestExclusionsHoldBesideAPolicyThatCannotBeUsed(t *testing.T) {
	e := newEngine(t, engine.Options{})
	e.Load([]engine.Policy{limitedTo("p", `["b"]`), {Name: "broken", ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: "package comity.policies.broken\n\ndeny contains"}}})
	in := request("b", "c")
	in.Operation, in.UserInfo = decision.Audit, nil
	got := e.Evaluate(t.Context(), in)
	if diff := cmp.Diff([]string{"b"}, got.Excluded); diff != "" || got.Outcome != decision.NotEvaluated {
		t.Errorf("got %+v (-want +got):\n%s", got, diff)
	}
}

func TestAViolationSaysForWhichClusters(t *testing.T) {
	v := decision.Violation{Policy: "p", Field: "spec", Message: "it stays here", Remedy: "None."}
	for _, tc := range []struct {
		clusters []string
		want     string
	}{
		{nil, "[p] spec: it stays here. Remedy: None."},
		{[]string{"b"}, "[p] spec: it stays here. Refused for cluster b. Remedy: None."},
		{[]string{"b", "c"}, "[p] spec: it stays here. Refused for clusters b, c. Remedy: None."},
		{[]string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12"}, "[p] spec: it stays here. Refused for clusters 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more. Remedy: None."},
	} {
		v.Clusters = tc.clusters
		if diff := cmp.Diff(tc.want, v.String()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// A denial for some clusters holds whether the export is published or not: otherwise it
// would be withdrawn from them, then count as published, and be published to them again.
func TestADenialForClustersHoldsWherePublishedExportsAreKept(t *testing.T) {
	e := loaded(t, engine.Options{}, limitedTo("p", `["c"]`, keep))
	for _, published := range []bool{false, true} {
		verdict := e.Evaluate(t.Context(), audit(published))
		if verdict.Outcome != decision.Allowed || !slices.Equal(verdict.Excluded, []string{"c"}) {
			t.Errorf("published %t: got %+v, want Allowed without c", published, verdict)
		}
	}
}
