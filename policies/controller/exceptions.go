// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

const (
	// longestWait is how long the clock is not read at most: a machine that was suspended
	// must not prolong an exception by that time.
	longestWait = time.Hour
	// maxOver is how many exceptions that are over a condition names.
	maxOver = 5
)

// awaitEnd makes the policies be loaded again when the next exception ends.
func (r *reconciler) awaitEnd(policies []v1alpha1.ExportPolicy, now time.Time) {
	var next time.Time
	for i := range policies {
		for _, e := range policies[i].Spec.Exceptions {
			if end, ok := engine.EndOf(e); ok && end.After(now) && (next.IsZero() || end.Before(next)) {
				next = end
			}
		}
	}
	select {
	case <-r.ends: // the one before, if nobody read it yet
	default:
	}
	r.ends <- next
}

// awaitEnds requests a load whenever an exception ends.
func (r *reconciler) awaitEnds(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	var next time.Time
	timer := r.options.Clock.NewTimer(longestWait)
	defer timer.Stop()
	for {
		wait := longestWait
		if left := next.Sub(r.options.Clock.Now()); !next.IsZero() {
			wait = min(wait, left)
		}
		if wait <= 0 {
			next, wait = time.Time{}, longestWait
			queue.Add(all) // which says when the one after it ends
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case next = <-r.ends:
		case <-timer.C():
		}
	}
}

// over says which exceptions are over, in a sentence after others; empty if none is.
func over(exceptions []v1alpha1.Exception, now time.Time) string {
	var names []string
	for _, e := range exceptions {
		if !engine.IsOver(e, now) {
			continue
		}
		what := e.Namespace + "/" + e.Name
		if e.Name == "" {
			what = "all of " + e.Namespace
		}
		names = append(names, fmt.Sprintf("%s (until %s)", what, e.Until))
	}
	if len(names) > maxOver {
		names = append(names[:maxOver], fmt.Sprintf("and %d more", len(names)-maxOver))
	}
	if len(names) == 0 {
		return ""
	}
	return " Exceptions that are over: " + strings.Join(names, ", ") + "."
}
