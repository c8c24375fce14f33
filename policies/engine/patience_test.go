// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/comity-mcs/comity/policies/decision"
)

func TestAnAuditIsRepeatedWhenTheMachineIsBusy(t *testing.T) {
	broken, audit := errors.New("it is broken"), &Subject{Operation: decision.Audit}
	for name, test := range map[string]struct {
		errs  []error // of the attempts
		fails error
		calls int
	}{
		"it is evaluated at once":                    {[]error{nil}, nil, 1},
		"it takes too long once":                     {[]error{fmt.Errorf("policy p: %w", errTooSlow), nil}, nil, 2},
		"it takes too long twice":                    {[]error{errTooSlow, errTooSlow, nil}, nil, 3},
		"it always takes too long":                   {[]error{errTooSlow, errTooSlow, errTooSlow, nil}, errTooSlow, auditAttempts},
		"a policy fails, which a retry does not fix": {[]error{broken, nil}, broken, 1},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			_, err := patiently(t.Context(), audit, func() ([]answer, error) {
				calls++
				return nil, test.errs[calls-1]
			})
			if !errors.Is(err, test.fails) || calls != test.calls {
				t.Errorf("evaluated %d times: %v; want %d, %v", calls, err, test.calls, test.fails)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	_, err := patiently(ctx, audit, func() ([]answer, error) {
		calls++
		cancel()
		return nil, errTooSlow
	})
	if !errors.Is(err, errTooSlow) || calls != 1 {
		t.Errorf("after the end of the context, evaluated %d times: %v", calls, err)
	}
}
