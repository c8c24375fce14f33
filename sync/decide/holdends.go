// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
)

// ownRetry is how soon an import is decided again of which the own export was lost, or
// the own id is doubtful: the end of that need not be an event.
const ownRetry = 10 * time.Second

// Again is how long to wait until a hold ends by itself, the grace period of the own
// export does, or policies are to be evaluated again; zero if there is nothing to wait
// for. A hold may have ended before while it cannot be seen whether the export waits.
func (d ImportDecision) Again(now time.Time) (wait time.Duration) {
	if d.OwnExportLost {
		return ownRetry
	}
	ends := append(slices.Collect(maps.Values(d.TakeoverUntil)), d.WithdrawnAt)
	if d.NotEvaluated {
		ends = append(ends, now.Add(policyRetry))
	}
	for _, end := range ends {
		if in := end.Sub(now); in > 0 && (wait == 0 || in < wait) {
			wait = in
		}
	}
	return wait
}

// ExportID names one export of one cluster. A member chooses the UID that it publishes:
// it may be that of another one's export.
type ExportID struct {
	Cluster model.ClusterID
	UID     types.UID
}

func (id ExportID) isOf(e model.Export) bool { return id == ExportID{e.Cluster, e.UID} }

// running are the holds that go on, although a cluster is unread so that it cannot be
// seen whether an export waits: one such moment must not begin every hold again.
func (v ImportView) running(goesOn func(ExportID) bool) map[ExportID]time.Time {
	out := map[ExportID]time.Time{}
	for id, until := range v.TakeoverUntil {
		if v.TakeoverHold > 0 && goesOn(id) {
			out[id] = until
		}
	}
	return out
}

// holdEnds is when the hold of an export ends by itself, and whether it has; zero if it
// never does.
func (v ImportView) holdEnds(e model.Export) (time.Time, bool) {
	if v.TakeoverHold == model.HoldUntilConfirmed {
		return time.Time{}, false
	}
	until, known := v.TakeoverUntil[ExportID{e.Cluster, e.UID}]
	if !known {
		until = v.Now.Add(v.TakeoverHold)
	}
	return until, !v.Now.Before(until)
}
