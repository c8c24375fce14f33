// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"cmp"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
)

// HTTP status codes: net/http has more than a pure package may know.
const (
	codeOK          = 200
	codeBadRequest  = 400
	codeForbidden   = 403
	codeUnavailable = 503
)

// maxLine bounds a line of an answer, in bytes: the API server cuts the warnings of a
// request that have more than 4,096 characters together.
const maxLine = 4096

// maxRefusal bounds all lines of a refusal.
const maxRefusal = 64 << 10

// Answer is what the API server gets.
type Answer = admissionv1.AdmissionResponse

// Allow is the answer to a request that needs no review.
func Allow() Answer {
	return Answer{Allowed: true, Result: &metav1.Status{Code: codeOK}}
}

// refuse is an answer with the cause of a refusal, and what to do.
func refuse(code int32, reason metav1.StatusReason, message string) Answer {
	return Answer{Result: &metav1.Status{Code: code, Reason: reason, Message: message}}
}

// Subject is the object that an answer is about.
type Subject struct {
	Kind decision.Subject
	Key  types.NamespacedName
}

// String is kind, namespace and name.
func (s Subject) String() string { return fmt.Sprintf("%s %s", s.Kind, s.Key) }

// FromVerdict is the answer that follows from a verdict:
//
//	Allowed       allowed, with the warnings
//	Denied        Forbidden: one line on the object, one per violation, then what failed
//	NotEvaluated  ServiceUnavailable: the user has nothing to correct
//
// Any other outcome counts as NotEvaluated: without an answer of the policies
// nothing is allowed.
func FromVerdict(subject Subject, verdict decision.Verdict) (answer Answer) {
	switch verdict.Outcome {
	case decision.Allowed:
		answer = Allow()
	case decision.Denied:
		answer = refuse(codeForbidden, metav1.StatusReasonForbidden, refusal(subject, verdict))
	default:
		problem := cmp.Or(verdict.Problem, "the policies gave no answer")
		answer = Unavailable(notEvaluated(subject, strings.TrimSuffix(oneLine(problem), "."), verdict.Failed))
	}
	answer.Warnings = Lines(verdict.Warnings)
	return answer
}

// notEvaluated names the policies that are the cause, if any is: then trying again
// does not help.
func notEvaluated(subject Subject, problem string, failed []string) string {
	if len(failed) == 0 {
		return fmt.Sprintf("%s was refused because the policies could not be evaluated: %s. Remedy: try again in a few seconds; "+
			"if it stays so, see the ExportPolicies (kubectl get exportpolicies) and the log of Comity", subject, problem)
	}
	return fmt.Sprintf("%s was refused because ExportPolicy %s could not be evaluated: %s. Remedy: have an administrator correct or create it (kubectl describe exportpolicy %s)",
		subject, strings.Join(failed, ", "), problem, strings.Join(failed, " "))
}

// Malformed is the answer to an object that contradicts itself or cannot be read,
// before any policy is evaluated.
func Malformed(message string) Answer {
	return refuse(codeBadRequest, metav1.StatusReasonBadRequest, message)
}

// Unavailable is the answer to a request that could not be decided on now.
func Unavailable(message string) Answer {
	return refuse(codeUnavailable, metav1.StatusReasonServiceUnavailable, message)
}

func refusal(subject Subject, verdict decision.Verdict) string {
	policies := sets.New(model.Map(verdict.Violations, func(v decision.Violation) string { return v.Policy })...)
	noun := "policies"
	if len(policies) == 1 {
		noun = "policy"
	}
	because := ""
	if subject.Kind == decision.SubjectService {
		// The user may not know of the ServiceExport.
		because = fmt.Sprintf(", because ServiceExport %s exports it", subject.Key)
	}
	first := fmt.Sprintf("%s was refused by %d %s%s:", subject, len(policies), noun, because)
	all := append([]string{first}, Lines(verdict.Violations)...)
	if verdict.Problem != "" {
		all = append(all, oneLine("Not every policy could be evaluated: "+verdict.Problem))
	}
	return model.Bound(strings.Join(all, "\n"), maxRefusal)
}

// Lines are texts, or violations, as the API server accepts them: one line for each, without
// control characters.
func Lines[T any](all []T) (lines []string) {
	for _, one := range all {
		lines = append(lines, oneLine(fmt.Sprint(one)))
	}
	return lines
}

// oneLine bounds a policy's message, and removes what a terminal would not print: the API
// server drops a warning that has a control character.
func oneLine(s string) string { return model.OneLine(s, maxLine) }
