// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/webhook/admit"
)

// server decodes AdmissionReviews for a handler. Unlike admission.Webhook it decodes
// only what the handlers read, which is a fifth of what there is: of the request no options
// and no extra of the user, and of the objects what unmarshal reads.
type server struct {
	webhooks
	// name is that of the webhook in metrics and in the log.
	name    string
	handler handler
	log     logr.Logger
}

var reviewType = metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}

// review is an AdmissionReview as far as it is read.
type review struct {
	metav1.TypeMeta `json:",inline"`
	Request         *struct {
		admissionv1.AdmissionRequest
		UserInfo decision.UserInfo `json:"userInfo"` // without extra
		Options  skipped           `json:"options"`
	} `json:"request"`
}

// serve answers a request with that body. The handler has as long as the API server waits,
// also if the process is to end meanwhile: the context of a request ends with that of the
// manager, before the webhook server stops.
func (s server) serve(w http.ResponseWriter, r *http.Request, body []byte) {
	var answer admit.Answer
	request, err := readReview(r, body)
	if err != nil {
		s.log.Error(err, "bad request")
		answer = admit.Malformed(err.Error())
	} else {
		ctx, cancel := context.WithTimeout(logf.IntoContext(context.WithoutCancel(r.Context()), s.log), budget(r))
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
func (s server) handle(ctx context.Context, request admission.Request) (answer admit.Answer) {
	defer func() {
		if p := recover(); p != nil {
			for _, handler := range utilruntime.PanicHandlers {
				handler(ctx, p)
			}
			answer = admission.Errored(http.StatusInternalServerError, fmt.Errorf("panic: %v [recovered]", p)).AdmissionResponse
		}
	}()
	start := s.Clock.Now()
	answer = s.handler(ctx, request)
	outcome := outcomeOf(answer)
	s.seconds.WithLabelValues(s.name, outcome).Observe(s.Clock.Since(start).Seconds())
	logAnswer(s.log, request, answer, outcome)
	return answer
}

func readReview(r *http.Request, body []byte) (admission.Request, error) {
	if given := r.Header.Get("Content-Type"); given != "application/json" {
		return admission.Request{}, fmt.Errorf("contentType=%s, expected application/json", given)
	}
	var given review
	if err := json.Unmarshal(body, &given); err != nil {
		return admission.Request{}, fmt.Errorf("decode the AdmissionReview: %w", err)
	}
	if given.TypeMeta != reviewType || given.Request == nil {
		return admission.Request{}, errors.New("expected an AdmissionReview of admission.k8s.io/v1 with a request")
	}
	in := given.Request
	if len(in.UID) > maxUID {
		return admission.Request{}, fmt.Errorf("request.uid of the AdmissionReview has %d bytes, expected at most %d", len(in.UID), maxUID)
	}
	in.AdmissionRequest.UserInfo = authenticationv1.UserInfo{Username: in.UserInfo.Username, Groups: in.UserInfo.Groups}
	return admission.Request{AdmissionRequest: in.AdmissionRequest}, nil
}
