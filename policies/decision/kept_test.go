// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decision_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
)

// audited is the verdict of an audit of an export of a Service of a type, of which policies
// that keep what is published deny something.
func audited(kind corev1.ServiceType, record string, denied ...string) decision.Verdict {
	in := decision.Input{Operation: decision.Audit, Published: true, Kept: record, Object: &mcsv1beta1.ServiceExport{}, Service: &corev1.Service{Spec: corev1.ServiceSpec{Type: kind}}}
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

// Where the webhook is not asked, an export can be changed without a refusal.
func TestKeepDoesNotKeepWhatComesWithAChangeOfTheExport(t *testing.T) {
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
	ratchet := func(record string, denied ...string) decision.Verdict {
		v := decision.Verdict{Outcome: decision.Allowed}
		for _, message := range denied {
			v.Warnings = append(v.Warnings, decision.Violation{Policy: "labels", Message: message, Softening: decision.ByExisting})
		}
		v.Ratchet(decision.Input{Operation: decision.Audit, Published: true, Kept: record, Object: export})
		return v
	}
	clean := ratchet("").Kept
	export.Status.Conditions, export.Generation = []metav1.Condition{{Type: "Ready"}}, 2
	if v := ratchet(clean, "no owner"); v.Outcome != decision.Allowed {
		t.Errorf("after a change of its status: %+v", v)
	}
	for name, change := range map[string]func(){
		"labels":      func() { export.Labels = map[string]string{"a": "b"} },
		"annotations": func() { export.Annotations = map[string]string{"a": "b"} },
		"spec":        func() { export.Spec.ExportedLabels = map[string]string{"a": "b"} },
	} {
		before := ratchet("").Kept
		if change(); ratchet(before, "no owner").Outcome != decision.Denied {
			t.Errorf("a violation that came with a change of its %s is kept", name)
		}
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
