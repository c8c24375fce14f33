// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/preview"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// maxPreview is how long a preview may take. It is below half of the 3 s that the
// API server waits, and even of 10 s nobody wants to wait longer for a warning.
const maxPreview = 1200 * time.Millisecond

// Policies has the policies in use; child.Client is one.
type Policies interface {
	// Change is what storing a policy would do, or the error that loading it would give.
	Change(ctx context.Context, policy engine.Policy) (engine.Change, error)
}

// Checker checks for the webhook whether a policy could be used, and says what it would
// do to the stored exports. It runs one preview at a time, so that previews take at most one
// CPU.
type Checker struct {
	// Policies are those in use, with which it compares.
	Policies Policies
	// Source has the stored exports and imports.
	Source  preview.Source
	running sync.Mutex
}

// Check is what storing the policy would do, as warnings; none if nothing. They take at most
// half of the time that is left until ctx ends, and say so if there is no preview, or one of a
// part of the exports only. They name exports of any namespace.
//
// The error is that of a policy that does not compile, in lines of file:row:column and message
// as in the condition Compiled.
func (c *Checker) Check(ctx context.Context, policy *v1alpha1.ExportPolicy) (would []string, err error) {
	change, err := c.Policies.Change(ctx, engine.FromObject(policy, time.Now()))
	if err != nil {
		return nil, err
	}
	none := func(why any) []string {
		return []string{fmt.Sprintf("[%s] there is no preview of what it would do: %v", policy.Name, why)}
	}
	if !c.running.TryLock() {
		return none("another one is being made"), nil
	}
	defer c.running.Unlock()
	ctx, release := engine.ShareOf(ctx, 2)
	defer release()
	ctx, cancel := context.WithTimeout(ctx, maxPreview)
	defer cancel()
	report, err := preview.Run(ctx, change, c.Source)
	if err != nil {
		return none(err), nil
	}
	return report.Warnings(policy.Name), nil
}
