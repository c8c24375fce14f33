// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var refused = &url.Error{Op: "Get", URL: "https://192.0.2.1", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}

// An outage of ten minutes ends within the seconds of one attempt, for every kind.
func TestAnAPIServerThatDoesNotAnswerIsAskedAgainEveryFewSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const outage = 10 * time.Minute
		begun, last := time.Now(), time.Now()
		var longest time.Duration
		attempts := 0
		answer, err := UntilAnswered(t.Context(), Unanswered, func() (string, error) {
			longest, last = max(longest, time.Since(last)), time.Now()
			attempts++
			if time.Since(begun) < outage {
				return "", refused
			}
			return "answer", nil
		})
		if answer != "answer" || err != nil {
			t.Errorf("got %q and error %v", answer, err)
		}
		if limit := lastRetry * 3 / 2; longest > limit || time.Since(begun) > outage+limit {
			t.Errorf("asked again after %v at most, and answered after %v; want %v and %v", longest, time.Since(begun), limit, outage+limit)
		}
		if attempts > int(outage/lastRetry)+10 {
			t.Errorf("%d attempts in %v", attempts, outage)
		}
	})
}

func TestOnlyAnAPIServerThatDoesNotAnswerIsAskedAgain(t *testing.T) {
	tooLarge := apierrors.NewTimeoutError("Too large resource version: 9, current: 2", 1)
	tooLarge.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	for name, c := range map[string]struct {
		err   error
		again bool
	}{
		"no error":                      {nil, false},
		"connection refused":            {refused, true},
		"starting":                      {apierrors.NewServiceUnavailable("starting"), true},
		"ended in its answer":           {fmt.Errorf("unexpected error when reading response body: %w", io.ErrUnexpectedEOF), true},
		"overloaded":                    {apierrors.NewTooManyRequests("later", 1), true},
		"forbidden":                     {apierrors.NewForbidden(schema.GroupResource{Resource: "exportrecords"}, "", errors.New("no")), false},
		"unauthorized":                  {apierrors.NewUnauthorized("expired"), false},
		"a version that is forgotten":   {apierrors.NewResourceExpired("too old"), false},
		"a version of before a restore": {tooLarge, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempts := 0
				_, err := UntilAnswered(t.Context(), Unanswered, func() (bool, error) {
					if attempts++; attempts > 1 {
						return true, nil
					}
					return false, c.err
				})
				if again := attempts > 1; again != c.again {
					t.Errorf("asked again: %v; want %v", again, c.again)
				}
				if !c.again && !errors.Is(err, c.err) {
					t.Errorf("got error %v", err)
				}
			})
		})
	}
}

func TestNobodyIsAskedAgainAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		if _, err := UntilAnswered(ctx, Unanswered, func() (bool, error) { return false, refused }); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("got error %v", err)
		}
		if d := time.Since(begun); d != time.Minute {
			t.Errorf("returned after %v", d)
		}
	})
}
