// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/comity-mcs/comity/policies/engine"
)

// counted are the samples of the engine's metrics by policy and result; of the
// histogram, how many times there are.
func counted(t *testing.T, registry *prometheus.Registry) map[string]int {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			key := ""
			for _, l := range m.GetLabel() {
				key += l.GetValue() + " "
			}
			if h := m.GetHistogram(); h != nil {
				got[key+"times"] = int(h.GetSampleCount())
				continue
			}
			got[key+"times counted"] = int(m.GetCounter().GetValue())
		}
	}
	return got
}

func TestEvaluationsAreCountedByPolicyAndResult(t *testing.T) {
	registry := prometheus.NewRegistry()
	warning := denying("warns", "no", "true")
	warning.Enforcement = "Warn"
	e := loaded(t, engine.Options{Registerer: registry},
		denying("denies", "no", "true"), denying("allows", "no", "false"), warning, matching(denying("elsewhere", "no", "true"), "app", "web"))
	for range 3 {
		e.Evaluate(t.Context(), request("b"))
	}
	want := map[string]int{
		"denies Denied times counted": 3, "Request denies times": 3, "allows Allowed times counted": 3, "Request allows times": 3, "warns Warned times counted": 3, "Request warns times": 3,
	}
	if diff := cmp.Diff(want, counted(t, registry)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	t.Log("a policy that is deleted has no metrics; one that fails and one that cannot be used are counted by name")
	e.Load([]engine.Policy{denying("allows", "no", "false"), broken("broken")})
	e.Evaluate(t.Context(), request("b"))
	e.Load([]engine.Policy{denying("allows", "no", "false"), denying("fails", "no", `to_number(input.object.metadata.name) > 1`)})
	e.Evaluate(t.Context(), request("b"))
	want = map[string]int{"allows Allowed times counted": 5, "Request allows times": 5, "fails NotEvaluated times counted": 1, "Request fails times": 1}
	if diff := cmp.Diff(want, counted(t, registry)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
