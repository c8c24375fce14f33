// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
)

// interval is how often something awaited is tried again. A definition is
// served within a second of its creation.
const interval = time.Second

// pending is an error that time may cure.
type pending struct{ error }

func (p pending) Unwrap() error { return p.error }

// wait marks what has to be awaited.
func wait(format string, args ...any) error { return pending{fmt.Errorf(format, args...)} }

// await calls do until it succeeds, fails for good, or ctx ends. It prints what
// it waits for, one line for each change.
func await(ctx context.Context, out io.Writer, do func(context.Context) error) error {
	said := ""
	err := utilwait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		err := classify(do(ctx))
		switch {
		case err == nil:
			return true, nil
		case ctx.Err() != nil: // the error may be that of a request that was cut short
			said = cmp.Or(said, err.Error())
			return false, nil //nolint:nilerr // the poll ends with the error of ctx
		case !errors.As(err, new(pending)):
			return false, err
		case err.Error() != said:
			said = err.Error()
			say(out, "waiting: %s", said)
		}
		return false, nil
	})
	switch {
	case err == nil || ctx.Err() == nil:
		return err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("gave up waiting (--timeout): %s", said)
	}
	return fmt.Errorf("interrupted while waiting: %s", said)
}

// classify marks errors of the API server that time may cure.
func classify(err error) error {
	var (
		p       pending
		network *url.Error
	)
	switch {
	case err == nil, errors.As(err, &p):
		return err
	case meta.IsNoMatchError(err):
		return wait("the API server does not serve the kind yet: %w", err)
	case apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook"):
		return wait("the webhook does not answer yet: %w", err)
	case apierrors.IsServiceUnavailable(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsTooManyRequests(err),
		strings.Contains(err.Error(), "not yet ready to handle request"):
		return wait("the API server asks to try again: %w", err)
	case errors.As(err, &network):
		return wait("the API server does not answer: %w", err)
	}
	return err
}
