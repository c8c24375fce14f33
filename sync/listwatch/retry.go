// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"
	"errors"
	"net"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// How long after the first and after any later failure an API server that does not
// answer is asked again, plus up to half of that.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 8 * time.Second
)

// UntilAnswered makes request until its error is none that unanswered is true of, or ctx
// ends, and returns what came last. A reflector would wait up to a minute between two
// attempts, and forgets that only two minutes after the last failure: once an API server
// is back, some kinds would be read a minute later than others.
func UntilAnswered[T any](ctx context.Context, unanswered func(error) bool, request func() (T, error)) (T, error) {
	delay := wait.Backoff{Duration: firstRetry, Factor: 2, Jitter: 0.5, Steps: 10, Cap: lastRetry}
	for {
		answer, err := request()
		if !unanswered(err) {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return answer, err
		case <-time.After(delay.Step()):
		}
	}
}

// Unanswered reports whether err is that of an API server which is not reached, is
// starting, or is overloaded. What it answers otherwise is for the reflector: it lists
// again, for example, from a version that the server has.
func Unanswered(err error) bool {
	var network net.Error // as a *url.Error is
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || errors.As(err, &network)
}
