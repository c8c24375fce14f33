// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/webhook/admit"
)

// server decodes AdmissionReviews for a handler. Unlike admission.Webhook it decodes
// only what the handlers read: of the request no options and no extra of the user.
type server struct {
	webhooks
	// name is that of the webhook in metrics and in the log.
	name   string
	answer handler
	log    logr.Logger
}

var reviewType = metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}

// review is an AdmissionReview as far as it is read.
type review struct {
	metav1.TypeMeta `json:",inline"`
	Request         *admissionRequest `json:"request"`
}

// admissionRequest is an AdmissionRequest as far as it is read.
type admissionRequest struct {
	admissionv1.AdmissionRequest
	UserInfo decision.UserInfo `json:"userInfo"` // without extra
	Options  skipped           `json:"options"`
}

// serve answers a request with that body. The handler has its time,
// also if the process is to end meanwhile: the context of a request ends with that of the
// manager, before the webhook server stops.
func (s server) serve(w http.ResponseWriter, r *http.Request, body []byte, budget time.Duration) {
	var answer admit.Answer
	request, err := readReview(body)
	if err != nil {
		s.log.Error(err, "bad request")
		answer = admit.Malformed(err.Error())
	} else {
		ctx, cancel := context.WithTimeout(logf.IntoContext(context.WithoutCancel(r.Context()), s.log), budget)
		defer cancel()
		answer = s.handle(ctx, request)
		answer.UID = request.UID
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(admissionv1.AdmissionReview{TypeMeta: reviewType, Response: &answer}); err != nil {
		s.log.Error(err, "write the answer")
	}
}

// handle gives the answer, measures and logs it. A panic becomes a refusal.
func (s server) handle(ctx context.Context, request *admissionRequest) (answer admit.Answer) {
	defer func() {
		if p := recover(); p != nil {
			for _, handler := range utilruntime.PanicHandlers {
				handler(ctx, p)
			}
			answer = admission.Errored(http.StatusInternalServerError, fmt.Errorf("panic: %v [recovered]", p)).AdmissionResponse
		}
	}()
	start := s.Clock.Now()
	answer = s.answer(ctx, request)
	outcome := outcomeOf(answer)
	s.seconds.WithLabelValues(s.name, outcome).Observe(s.Clock.Since(start).Seconds())
	logAnswer(s.log, request, answer, outcome)
	return answer
}

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
func logAnswer(log logr.Logger, req *admissionRequest, answer admit.Answer, outcome string) {
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

// outcomeMalformed is the fourth value of the metric's label outcome, beside
// the outcomes of a verdict: the object could not be read or contradicts itself.
const outcomeMalformed = "Malformed"

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

func readReview(body []byte) (*admissionRequest, error) {
	var given review
	if err := json.Unmarshal(body, &given); err != nil {
		return nil, fmt.Errorf("decode the AdmissionReview: %w", err)
	}
	switch {
	case given.TypeMeta != reviewType || given.Request == nil:
		return nil, errors.New("expected an AdmissionReview of admission.k8s.io/v1 with a request")
	case len(given.Request.UID) > maxUID:
		return nil, fmt.Errorf("request.uid of the AdmissionReview has %d bytes, expected at most %d", len(given.Request.UID), maxUID)
	}
	return given.Request, nil
}
