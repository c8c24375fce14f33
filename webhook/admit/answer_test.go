// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package admit_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/webhook/admit"
)

// answer is what the user gets of an Answer.
type answer struct {
	Allowed  bool
	Reason   metav1.StatusReason
	Message  string
	Warnings []string
}

func TestFromVerdict(t *testing.T) {
	key := types.NamespacedName{Namespace: "default", Name: "web"}
	export := admit.Subject{Kind: decision.SubjectServiceExport, Key: key}
	service := admit.Subject{Kind: decision.SubjectService, Key: key}
	externalName := decision.Violation{
		Policy: "no-external-name", Reason: "InvalidServiceType", Field: "spec.type",
		Message: "an ExternalName Service cannot be exported.", Remedy: "give it a selector.",
	}
	unknown := decision.Violation{
		Policy: "export-scope", Field: `metadata.annotations["comity.dev/export-to"]`, Message: "no member is called x.",
	}

	for _, tc := range []struct {
		name    string
		subject admit.Subject
		verdict decision.Verdict
		want    answer
	}{
		{
			name:    "what all policies allow passes without a word",
			subject: export,
			verdict: decision.Verdict{Outcome: decision.Allowed},
			want:    answer{Allowed: true},
		},
		{
			name:    "warnings pass on, one line each",
			subject: export,
			verdict: decision.Verdict{Outcome: decision.Allowed, Warnings: []decision.Violation{unknown, {Policy: "p", Message: "two\nlines."}}},
			want: answer{Allowed: true, Warnings: []string{
				`[export-scope] metadata.annotations["comity.dev/export-to"]: no member is called x.`,
				"[p] two lines.",
			}},
		},
		{
			name:    "a refusal names the object, then policy, field and remedy",
			subject: export,
			verdict: decision.Verdict{Outcome: decision.Denied, Violations: []decision.Violation{externalName}},
			want: answer{Reason: metav1.StatusReasonForbidden, Message: "ServiceExport default/web was refused by 1 policy:\n" +
				"[no-external-name] spec.type: an ExternalName Service cannot be exported. Remedy: give it a selector."},
		},
		{
			name:    "policies are counted, not violations, and warnings are told with a refusal",
			subject: export,
			verdict: decision.Verdict{
				Outcome: decision.Denied, Violations: []decision.Violation{unknown, unknown, externalName},
				Warnings: []decision.Violation{{Policy: "p", Message: "careful"}},
			},
			want: answer{
				Reason: metav1.StatusReasonForbidden,
				Message: "ServiceExport default/web was refused by 2 policies:\n" +
					"[export-scope] metadata.annotations[\"comity.dev/export-to\"]: no member is called x.\n" +
					"[export-scope] metadata.annotations[\"comity.dev/export-to\"]: no member is called x.\n" +
					"[no-external-name] spec.type: an ExternalName Service cannot be exported. Remedy: give it a selector.",
				Warnings: []string{"[p] careful."},
			},
		},
		{
			name:    "what is denied comes before what failed",
			subject: export,
			verdict: decision.Verdict{Outcome: decision.Denied, Violations: []decision.Violation{{Policy: "p", Message: "no"}}, Problem: "policy q: it took too long", Failed: []string{"q"}},
			want: answer{Reason: metav1.StatusReasonForbidden, Message: "ServiceExport default/web was refused by 1 policy:\n[p] no.\n" +
				"Not every policy could be evaluated: policy q: it took too long"},
		},
		{
			name:    "the owner of a Service learns that somebody exports it",
			subject: service,
			verdict: decision.Verdict{Outcome: decision.Denied, Violations: []decision.Violation{externalName}},
			want: answer{Reason: metav1.StatusReasonForbidden, Message: "Service default/web was refused by 1 policy, because ServiceExport default/web exports it:\n" +
				"[no-external-name] spec.type: an ExternalName Service cannot be exported. Remedy: give it a selector."},
		},
		{
			name:    "without a verdict the request is refused, with the problem and advice",
			subject: export,
			verdict: decision.Verdict{Outcome: decision.NotEvaluated, Problem: "no policies are loaded yet."},
			want: answer{Reason: metav1.StatusReasonServiceUnavailable, Message: "ServiceExport default/web was refused because the policies could not be evaluated: no policies are loaded yet. " +
				"Remedy: try again in a few seconds; if it stays so, see the ExportPolicies (kubectl get exportpolicies) and the log of Comity"},
		},
		{
			name:    "FAULT 34: a policy that cannot be used is named as the cause",
			subject: export,
			verdict: decision.Verdict{Problem: "policy p cannot be used as it is stored (p.rego:1:1: no rego)", Failed: []string{"p"}},
			want: answer{Reason: metav1.StatusReasonServiceUnavailable, Message: "ServiceExport default/web was refused because ExportPolicy p could not be evaluated: " +
				"policy p cannot be used as it is stored (p.rego:1:1: no rego). Remedy: have an administrator correct or create it (kubectl describe exportpolicy p)"},
		},
		{
			name:    "the zero verdict is no permission",
			subject: export,
			verdict: decision.Verdict{},
			want: answer{Reason: metav1.StatusReasonServiceUnavailable, Message: "ServiceExport default/web was refused because the policies could not be evaluated: the policies gave no answer. " +
				"Remedy: try again in a few seconds; if it stays so, see the ExportPolicies (kubectl get exportpolicies) and the log of Comity"},
		},
		{
			name:    "an outcome that nobody knows is no permission",
			subject: export,
			verdict: decision.Verdict{Outcome: 17, Problem: "odd"},
			want: answer{Reason: metav1.StatusReasonServiceUnavailable, Message: "ServiceExport default/web was refused because the policies could not be evaluated: odd. " +
				"Remedy: try again in a few seconds; if it stays so, see the ExportPolicies (kubectl get exportpolicies) and the log of Comity"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := admit.FromVerdict(tc.subject, tc.verdict)
			if diff := cmp.Diff(tc.want, answer{got.Allowed, got.Result.Reason, got.Result.Message, got.Warnings}); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if code := map[metav1.StatusReason]int32{"": 200, metav1.StatusReasonForbidden: 403, metav1.StatusReasonServiceUnavailable: 503}[tc.want.Reason]; got.Result.Code != code {
				t.Errorf("code %d, want %d", got.Result.Code, code)
			}
		})
	}
}

// BAD INPUT: a policy with a thousand violations of 4 KiB each. An API server would not read the
// answer, and the user would learn nothing.
func TestARefusalIsBounded(t *testing.T) {
	verdict := decision.Verdict{Outcome: decision.Denied}
	for range 1000 {
		verdict.Violations = append(verdict.Violations, decision.Violation{Policy: "p", Message: strings.Repeat("x", 4096)})
	}
	answer := admit.FromVerdict(admit.Subject{Kind: decision.SubjectServiceExport}, verdict)
	if n := len(answer.Result.Message); n > 64<<10 || !strings.Contains(answer.Result.Message, "was refused by 1 policy:") {
		t.Errorf("%d bytes: %.80s", n, answer.Result.Message)
	}
}
