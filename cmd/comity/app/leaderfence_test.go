// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// answers is a server that answers everything with one status.
func answers(status int) http.RoundTripper {
	return roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Body: http.NoBody}, nil
	})
}

func TestFence(t *testing.T) {
	const lease, service = "/apis/coordination.k8s.io/v1/namespaces/comity-system/leases/comity-leader", "/api/v1/namespaces/shop/services/web"
	for _, tc := range []struct {
		name string
		// election is what the API server answers to a renewal; 0 for none sent.
		election int
		method   string
		after    time.Duration
		fenced   bool
	}{
		{"a replica that never led may write what all replicas do", 0, http.MethodPost, time.Hour, false},
		{"a candidate that was refused the Lease never led", http.StatusConflict, http.MethodPost, time.Hour, false},
		{"a leader writes", http.StatusOK, http.MethodPatch, 10 * time.Second, false},
		{"one that has not renewed in time does not", http.StatusOK, http.MethodPatch, 10*time.Second + time.Millisecond, true},
		{"nor does it delete", http.StatusOK, http.MethodDelete, time.Minute, true},
		{"but it may still read", http.StatusOK, http.MethodGet, time.Minute, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := time.Now()
			f := &leaderFence{now: func() time.Time { return now }, deadline: 10 * time.Second}
			if tc.election != 0 {
				response, err := f.election(answers(tc.election)).RoundTrip(httptest.NewRequest(http.MethodPut, lease, strings.NewReader("{}")))
				if err != nil || response.Body.Close() != nil {
					t.Fatal(err)
				}
			}
			now = now.Add(tc.after)
			response, err := refusing(f.refusal)(answers(http.StatusOK)).RoundTrip(httptest.NewRequest(tc.method, service, nil))
			if err == nil && response.Body.Close() != nil {
				t.Error("the body cannot be closed")
			}
			if errors.Is(err, errFenced) != tc.fenced {
				t.Errorf("got %v, want fenced: %t", err, tc.fenced)
			}
		})
	}
}

func TestALeaderIsFencedBeforeAnotherMayLead(t *testing.T) {
	timing := DefaultOptions().Timing
	if timing.RenewDeadline >= timing.LeaseDuration || timing.RetryPeriod >= timing.RenewDeadline {
		t.Errorf("renewed every %v, fenced after %v, another leads after %v: each must be shorter than the next",
			timing.RetryPeriod, timing.RenewDeadline, timing.LeaseDuration)
	}
}
