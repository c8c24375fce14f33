// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"encoding/json"
	"maps"
	"time"

	"github.com/comity-mcs/comity/policies/decision"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// grace is the time for which an export that policies deny stays published. It is
// announced in the conditions of the ServiceExport, so that its owner can act first.
type grace struct {
	// since is when each policy that denies the export was first found to, to the
	// second; recorded in the exchange, so that a restart does not begin it again.
	since map[string]time.Time
	// until is when the export is withdrawn: when the first grace period ends.
	until time.Time
}

// graceOf is the grace of a denied export; false if it is withdrawn now: it is not
// published, a violation of it has no grace period, or one has ended. Records are what
// the exchange holds of the export.
func graceOf(local LocalExport, records []*exchangev1alpha1.ExportRecord, now time.Time) (grace, bool) {
	recorded, published := deniedSince(local, records)
	g, in := graceFor(local.Verdict.Violations, recorded, now)
	return g, in && published
}

// graceFor is the grace that violations leave; false if one of them leaves none, or if there
// are none.
func graceFor(violations []decision.Violation, recorded map[string]time.Time, now time.Time) (grace, bool) {
	g := grace{since: map[string]time.Time{}}
	for _, v := range violations {
		since, known := recorded[v.Policy]
		if !known || since.After(now) { // a clock that went back prolongs nothing
			since = now.UTC().Truncate(time.Second)
		}
		g = g.and(grace{since: map[string]time.Time{v.Policy: since}, until: since.Add(v.Grace)})
	}
	return g, now.Before(g.until)
}

// and is what ends with the first of both.
func (g grace) and(other grace) grace {
	maps.Copy(g.since, other.since)
	if g.until.IsZero() || other.until.Before(g.until) {
		g.until = other.until
	}
	return g
}

// deniedSince is what the live records of the export say about its grace, and whether
// there is one. Of two times of one policy the earlier counts.
func deniedSince(local LocalExport, records []*exchangev1alpha1.ExportRecord) (since map[string]time.Time, published bool) {
	since = map[string]time.Time{}
	for _, record := range records {
		if local.Export == nil || !isLive(record) || record.Spec.ExportUID != local.Export.UID {
			continue
		}
		published = true
		recorded := map[string]time.Time{}
		if json.Unmarshal([]byte(record.Annotations[model.AnnotationDeniedSince]), &recorded) != nil {
			continue // there is none, or somebody changed it
		}
		for policy, at := range recorded {
			if known, has := since[policy]; !has || at.Before(known) {
				since[policy] = at
			}
		}
	}
	return since, published
}

// annotateSince has the record say when its export was first denied, if it is denied.
func (e *exporting) annotateSince(since map[string]time.Time) {
	if len(since) > 0 {
		text, _ := json.Marshal(since) // names and times, which JSON can express
		e.d.Plan.Annotations[model.AnnotationDeniedSince] = string(text)
	}
}

// publishInGrace publishes an export that is denied as it is now, but to nobody who
// cannot read it already, and decides again when its grace ends.
func (e *exporting) publishInGrace() {
	e.keepPublished()
	if e.d.Plan.Record != nil {
		e.planRecord()
	}
	e.announce()
}

// announce keeps the grace in the record, and decides again when it ends.
func (e *exporting) announce() {
	e.annotateSince(e.grace.since)
	e.again(e.grace.until.Sub(e.Now))
	e.d.Finding.WithdrawnAt = e.grace.until
}

// annotateKept has the record say which violations policies keep, or what it says already.
func (e *exporting) annotateKept() {
	kept := e.Local.Verdict.Kept
	for _, record := range e.Records {
		if kept == "" && e.published[record.Namespace] {
			kept = record.Annotations[model.AnnotationKept]
		}
	}
	if kept != "" && e.d.Plan.Record != nil {
		e.d.Plan.Annotations[model.AnnotationKept] = kept
	}
}
