// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestAwaitsWhatTimeMayCure(t *testing.T) {
	policy := schema.GroupResource{Group: "policy.comity.dev", Resource: "exportpolicies"}
	for _, tc := range []struct {
		name string
		err  error
		want bool
	}{
		{"the webhook is not up", apierrors.NewInternalError(errors.New(`failed calling webhook "x": failed to call webhook: Post "https://x": dial tcp: connection refused`)), true},
		{"the kind is not served", &meta.NoKindMatchError{}, true},
		{"the API server is starting", apierrors.NewServiceUnavailable("not yet"), true},
		{"the API server is busy", apierrors.NewTooManyRequests("later", 1), true},
		{"the API server is down", &url.Error{Op: "Get", URL: "https://x", Err: errors.New("refused")}, true},
		{"the webhook refuses", apierrors.NewForbidden(policy, "one", errors.New(`admission webhook "x" denied the request: no`)), false},
		{"the schema refuses", apierrors.NewInvalid(schema.GroupKind{}, "one", nil), false},
		{"the API server fails by itself", apierrors.NewInternalError(errors.New("etcd")), true},
		{"another implementation's definition is too old", refused{errors.New("too old")}, false},
	} {
		if got := !isFinal(tc.err); got != tc.want {
			t.Errorf("%s: awaited: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestAwaitSaysWhatItWaitsForOnceAndGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var out strings.Builder
		calls := 0
		err := await(ctx, &out, func(context.Context) error {
			calls++
			if calls < 10 {
				return errors.New("the first")
			}
			return errors.New("the second")
		})
		if out.String() != "waiting: the first\nwaiting: the second\n" {
			t.Errorf("got %q, want a line for each change", out.String())
		}
		if err == nil || !strings.Contains(err.Error(), "--timeout") || !strings.Contains(err.Error(), "the second") {
			t.Errorf("got %v, want that it gave up and on what", err)
		}
	})
}
