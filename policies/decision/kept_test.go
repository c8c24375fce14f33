// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decision_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/comity-mcs/comity/policies/decision"
)

// audited is the verdict of an audit of an export of a Service of a type, of which policies
// that keep what is published deny something.
func audited(kind corev1.ServiceType, record string, denied ...string) decision.Verdict {
	in := decision.Input{Operation: decision.Audit, Published: true, Kept: record, Service: &corev1.Service{Spec: corev1.ServiceSpec{Type: kind}}}
	v := decision.Verdict{Outcome: decision.Allowed, Excluded: []string{"b"}}
	for _, message := range denied {
		v.Warnings = append(v.Warnings, decision.Violation{Policy: "kinds", Message: message, Softening: decision.ByExisting})
	}
	v.Ratchet(in)
	return v
}

// FAULT 50: `existing: Keep` does not keep what comes with a change of the Service.
func TestKeepIsARatchet(t *testing.T) {
	const before, after = corev1.ServiceTypeClusterIP, corev1.ServiceTypeLoadBalancer
	clean := audited(before, "").Kept
	owner := audited(before, clean, "no owner").Kept
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprint("problem ", i))
	}
	for name, tc := range map[string]struct {
		kind       corev1.ServiceType
		record     string
		denied     []string
		violations string
	}{
		"the policy is stricter now":                      {before, clean, []string{"no owner"}, ""},
		"the Service changed, and nothing is wrong":       {after, clean, nil, ""},
		"the Service changed, and what was wrong stays":   {after, owner, []string{"no owner"}, ""},
		"the Service changed, and something is wrong":     {after, clean, []string{"LoadBalancer"}, "LoadBalancer"},
		"the Service changed, and something more is":      {after, owner, []string{"LoadBalancer", "no owner"}, "LoadBalancer"},
		"the same again, since the record stays":          {after, owner, []string{"LoadBalancer"}, "LoadBalancer"},
		"the Service is as before again":                  {before, owner, []string{"no owner"}, ""},
		"the record says nothing":                         {after, "", []string{"LoadBalancer"}, ""},
		"the record says what nobody wrote":               {after, "nonsense", []string{"LoadBalancer"}, ""},
		"more is kept than a record names":                {after, audited(before, clean, many...).Kept, []string{"LoadBalancer"}, ""},
		"what was wrong once, and better since, is new":   {after, audited(before, owner).Kept, []string{"no owner"}, "no owner"},
		"what is wrong in the words of another policy is": {after, strings.ReplaceAll(owner, ",", ""), []string{"no  owner"}, "no  owner"},
	} {
		t.Run(name, func(t *testing.T) {
			v := audited(tc.kind, tc.record, tc.denied...)
			var got []string
			for _, violation := range v.Violations {
				got = append(got, violation.Message)
				if violation.Softening != decision.NotSoftened {
					t.Errorf("%s is softened", violation.Message)
				}
			}
			if diff := cmp.Diff(tc.violations, strings.Join(got, ", ")); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
			denied := tc.violations != ""
			if (v.Outcome == decision.Denied) != denied || (v.Kept == "") != denied || (v.Excluded == nil) != denied {
				t.Errorf("outcome %s, clusters %v, the record is to say %q", v.Outcome, v.Excluded, v.Kept)
			}
			if len(v.Violations)+len(v.Warnings) != len(tc.denied) || len(v.Kept) > 1200 {
				t.Errorf("%d violations and %d warnings; the record has %d characters", len(v.Violations), len(v.Warnings), len(v.Kept))
			}
		})
	}
}

func TestOnlyAnAuditTurnsTheRatchet(t *testing.T) {
	for name, change := range map[string]func(*decision.Input, *decision.Verdict){
		"a request":             func(in *decision.Input, _ *decision.Verdict) { in.Operation = decision.Update },
		"nothing was evaluated": func(_ *decision.Input, v *decision.Verdict) { v.Outcome = decision.NotEvaluated },
	} {
		in := decision.Input{Operation: decision.Audit, Published: true, Kept: "other:"}
		v := decision.Verdict{Outcome: decision.Allowed, Warnings: []decision.Violation{{Policy: "p", Message: "m", Softening: decision.ByExisting}}}
		change(&in, &v)
		if v.Ratchet(in); v.Kept != "" || len(v.Violations) > 0 {
			t.Errorf("%s: %+v", name, v)
		}
	}
}
