// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"net"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/comity-mcs/comity/sync/remote/budget"
)

// How long after the first and after any later failure an API server that does not
// answer is asked again, plus up to half of that.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 8 * time.Second
)

// untilAnswered makes request until the API server answers it, or ctx ends, and
// returns what came last. A reflector would wait up to a minute between two attempts,
// and forgets that only two minutes after the last failure: some kinds of a peer that
// is back would be read a minute later than others.
func untilAnswered[T any](ctx context.Context, request func() (T, error)) (T, error) {
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

// unanswered reports whether err is that of a server which is not reached, is
// starting, or is overloaded. What it answers otherwise is for the reflector: it lists
// again, for example, from a version that the server has.
func unanswered(err error) bool {
	var limit *budget.Exceeded
	if err == nil || errors.As(err, &limit) {
		return false
	}
	if apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) {
		return true
	}
	var network net.Error // as a *url.Error is
	return errors.Is(err, errClosedEarly) || errors.As(err, &network)
}
