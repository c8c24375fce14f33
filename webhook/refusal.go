// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/webhook/admit"
)

// Keys of the audit annotations of a refusal, which the API server writes to its audit
// log after the name of the webhook, and the log line of Comity has as well. None has
// content of an object: the message of a violation may.
const (
	// auditPolicies and auditReasons are the policies that refuse the request, and the
	// reasons of their violations; of a request that could not be evaluated, the
	// policies that are the cause.
	auditPolicies = "policies"
	auditReasons  = "reasons"
	// auditDigest identifies the set of policies.
	auditDigest = "digest"
	// auditProblem is why no policy was evaluated. The problem of a policy is not
	// there, as that of to_number("abc") is what the object holds; the status of the
	// ExportPolicy has it.
	auditProblem = "problem"
)

const (
	// namespaceBurst and namespaceInterval bound the events of one namespace, whatever
	// names the exports in it are given.
	namespaceBurst    = 10
	namespaceInterval = 10 * time.Second
	// maxLimiters is for how many namespaces the last events are known.
	maxLimiters = 4096
)

// conclude is the answer that follows from a verdict. An event in the namespace of the export
// tells those of a refusal who do not see the answer, such as the users of a GitOps controller,
// unless the request is a dry run, which must have no side effect.
func (w webhooks) conclude(req *admissionRequest, subject admit.Subject, verdict decision.Verdict) admit.Answer {
	answer := admit.FromVerdict(subject, verdict)
	if answer.Allowed {
		return answer
	}
	answer.AuditAnnotations = auditAnnotations(verdict)
	if ptr.Deref(req.DryRun, false) || w.Recorder == nil || subject.Key.Name == "" || !w.allows(subject.Key.Namespace) {
		return answer
	}
	reason := model.ReasonNotEvaluated // as of the condition Admitted
	if verdict.Outcome == decision.Denied {
		reason = model.ReasonPolicyDenied
	}
	// The export may not exist, so it has no UID.
	regarding := &corev1.ObjectReference{
		APIVersion: mcsv1beta1.GroupVersion.String(), Kind: mcsv1beta1.ServiceExportKindName,
		Namespace: subject.Key.Namespace, Name: subject.Key.Name,
	}
	w.Recorder.Eventf(regarding, nil, corev1.EventTypeWarning, reason, string(req.Operation), "%s", model.Bound(answer.Result.Message, model.MaxEventNote))
	return answer
}

// allows reports whether an event in a namespace is not one too many, whatever names the exports in it are
// given. Those on one export are one event, which counts them.
func (w webhooks) allows(namespace string) bool {
	kept, known := w.limiters.Get(namespace)
	if !known {
		kept = rate.NewLimiter(rate.Every(namespaceInterval), namespaceBurst)
		w.limiters.Add(namespace, kept)
	}
	return kept.(*rate.Limiter).AllowN(w.Clock.Now(), 1)
}

func auditAnnotations(verdict decision.Verdict) map[string]string {
	policies, reasons := verdict.Failed, []string(nil)
	if verdict.Outcome == decision.Denied {
		policies = nil
		for _, v := range verdict.Violations { // sorted by policy
			policies, reasons = append(policies, v.Policy), append(reasons, v.Reason)
		}
	}
	if verdict.Digest == "" { // the policies were not reached
		return map[string]string{auditProblem: verdict.Problem}
	}
	return map[string]string{
		auditPolicies: strings.Join(slices.Compact(policies), ","),
		auditReasons:  strings.Join(slices.Compact(reasons), ","),
		auditDigest:   verdict.Digest,
	}
}
