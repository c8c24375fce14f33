// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"time"

	"github.com/comity-mcs/comity/policies/decision"
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

// awaitEnd makes the policies be loaded again when the next exception ends, or after
// longestWait.
func (r *reconciler) awaitEnd(policies []v1alpha1.ExportPolicy, now time.Time) {
	wait := time.Duration(0)
	for i := range policies {
		for _, e := range policies[i].Spec.Exceptions {
			if end, ok := engine.EndOf(e); ok && end.After(now) {
				wait = earlier(wait, min(end.Sub(now), longestWait))
			}
		}
	}
	if r.end != nil {
		r.end.Stop()
		r.end = nil
	}
	if wait > 0 {
		r.end = r.options.Clock.AfterFunc(wait, func() { r.queue.Add(all) })
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
	if len(names) == 0 {
		return ""
	}
	return " Exceptions that are over: " + decision.Some(names, maxOver) + "."
}
