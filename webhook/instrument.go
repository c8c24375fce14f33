// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/webhook/admit"
)

// outcomeMalformed is the fourth value of the metric's label outcome, beside
// the outcomes of a verdict: the object could not be read or contradicts itself.
const outcomeMalformed = "Malformed"

const (
	// defaultTimeout holds when the API server does not say how long it waits;
	// it is timeoutSeconds in config/webhook.
	defaultTimeout = 3 * time.Second
	// maxTimeout is the longest timeoutSeconds that the API server accepts. Everybody
	// who reaches the port can write a longer one into the URL.
	maxTimeout = 30 * time.Second
)

// newDuration makes and registers the histogram of answer times. Its buckets
// are fine enough to distinguish 8 ms from 12 ms; those of controller-runtime are a
// factor of ten apart.
func newDuration(reg prometheus.Registerer) *prometheus.HistogramVec {
	return promauto.With(reg).NewHistogramVec(prometheus.HistogramOpts{
		Name:    "comity_webhook_duration_seconds",
		Help:    "Time from an admission request to its answer, by webhook and outcome (Allowed, Denied, NotEvaluated, Malformed).",
		Buckets: []float64{.001, .002, .003, .005, .0075, .01, .015, .02, .03, .05, .1, .2, .5, 1, 2, 3, 5, 10},
	}, []string{"webhook", "outcome"})
}

// logAnswer writes one line for a refusal: who asked for what, and which policies of
// which set refuse it. It has no content of objects, and so neither the message, which
// the user has got.
func logAnswer(log logr.Logger, req admission.Request, answer admit.Answer, outcome string) {
	text := "refused"
	if answer.Allowed {
		log, text = log.V(1), "answered"
		if !log.Enabled() {
			return
		}
	}
	values := []any{
		"outcome", outcome, "operation", req.Operation, "kind", req.Kind.Kind, "namespace", req.Namespace, "name", req.Name,
		"user", req.UserInfo.Username, "dryRun", ptr.Deref(req.DryRun, false), "requestID", req.UID,
	}
	for _, key := range []string{auditPolicies, auditReasons, auditDigest, auditProblem} {
		if value, has := answer.AuditAnnotations[key]; has {
			values = append(values, key, value)
		}
	}
	log.Info(text, values...)
}

// outcomeOf derives the outcome from the answer itself, so that the metric always
// matches the answer.
func outcomeOf(answer admit.Answer) string {
	switch answer.Result.Code {
	case http.StatusOK:
		return decision.Allowed.String()
	case http.StatusForbidden:
		return decision.Denied.String()
	case http.StatusServiceUnavailable:
		return decision.NotEvaluated.String()
	}
	return outcomeMalformed
}

// timeoutOf is how long the API server waits for the answer, which is in the query of
// the URL ("?timeout=3s").
func timeoutOf(r *http.Request) time.Duration {
	timeout, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil || timeout <= 0 {
		return defaultTimeout
	}
	return min(timeout, maxTimeout)
}

// budget is how long a handler may take. A third of the API server's timeout is kept for
// sending the answer, also of many requests at once to a process that gets little CPU time:
// an answer names the cause, and a timeout does not.
func budget(r *http.Request) time.Duration {
	return timeoutOf(r) * 2 / 3
}
