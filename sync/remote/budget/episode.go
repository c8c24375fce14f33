// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package budget

import "time"

// A limit on how fast a member may change something is reported if it was exceeded for
// episodeReported without a break of episodeBreak, and until it was not for episodeOver: a
// rollout, which exceeds it for a few seconds, is nothing to report.
const (
	episodeReported = 10 * time.Second
	episodeBreak    = 5 * time.Second
	episodeOver     = time.Minute
)

// Episode is the time during which a limit is exceeded.
type Episode struct {
	first, last time.Time
	reported    bool
}

// Note records that the limit is exceeded at a time.
func (e *Episode) Note(at time.Time) {
	if at.Sub(e.last) > episodeBreak {
		e.first = at
	}
	e.last = at
}

// Lasts reports whether the limit is to be reported.
func (e *Episode) Lasts(now time.Time) bool {
	if now.Sub(e.last) >= episodeOver {
		e.reported = false
	} else if e.last.Sub(e.first) >= episodeReported {
		e.reported = true
	}
	return e.reported
}
