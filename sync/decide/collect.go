// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"slices"
	"time"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

const (
	// collectAfter is how old the statement of an ended export becomes at least. An hour is
	// longer than a member needs to read it, and to report what came of it.
	collectAfter = time.Hour
	// collectAnyway is how old it becomes at most, whatever became of its readers.
	collectAnyway = 30 * 24 * time.Hour
	// collectRetry is how often a statement is examined.
	collectRetry = 10 * time.Minute
	// MaxEnded is how many statements of ended exports are kept. Readers read at most
	// 20,000 records of a member, and the exports need room beside the statements.
	MaxEnded = 5000
)

// IsEnded reports whether a record states that its export ended.
func IsEnded(record *exchangev1alpha1.ExportRecord) bool {
	return record.Spec.Withdrawn && !record.Spec.Suspended
}

// StatementOrder sorts statements of withdrawal by when they were stated.
func StatementOrder(record *exchangev1alpha1.ExportRecord) string {
	at := time.Time{}
	if record.Spec.WithdrawnAt != nil {
		at = record.Spec.WithdrawnAt.Time
	}
	return at.UTC().Format(time.RFC3339) + "/" + record.Namespace + "/" + record.Name
}

// NeedsReports reports whether a statement exists that is deleted once no member reports
// anything about the export. Then v.Reports and v.CollectBefore have to be read.
func NeedsReports(v ExportView) bool { return slices.ContainsFunc(v.Records, IsEnded) }

// collect chooses the statements of ended exports that no member needs any more, and when
// to examine the others. A statement that is deleted too early removes nothing: an
// importer that did not read it keeps what it imported, as missing.
func (e *exporting) collect() {
	for _, record := range e.d.Plan.CurrentRecords {
		if !e.isOwn(record) || !IsEnded(record) || slices.Contains(e.d.Plan.Audience, record.Namespace) || record.Spec.ExportUID == e.d.Plan.Exists {
			continue
		}
		age := time.Duration(0) // also of a statement without a time, which gets one now
		if at := record.Spec.WithdrawnAt; at != nil {
			age = e.Now.Sub(at.Time)
		}
		if age >= collectAnyway || age >= collectAfter && e.isFollowed(record) || StatementOrder(record) < e.CollectBefore {
			e.d.Plan.Collect = append(e.d.Plan.Collect, record.Namespace)
			continue
		}
		e.again(collectRetry)
	}
}

// again decides again after some time, if not sooner.
func (e *exporting) again(after time.Duration) {
	if e.d.Again == 0 || after < e.d.Again {
		e.d.Again = after
	}
}

// isFollowed reports whether every reader of a statement was read completely, and none
// reports anything about the export. A removed member is no reader.
func (e *exporting) isFollowed(record *exchangev1alpha1.ExportRecord) bool {
	shared := model.ExchangeNamespace(e.Self)
	isRead := record.Namespace == shared || slices.ContainsFunc(e.Removed, func(id model.ClusterID) bool {
		return record.Namespace == model.ScopedExchangeNamespace(e.Self, id)
	})
	for _, m := range e.Members {
		if record.Namespace != shared && record.Namespace != model.ScopedExchangeNamespace(e.Self, m.ID) {
			continue
		}
		isRead = true
		reports := slices.ContainsFunc(e.Reports, func(r model.Report) bool { return r.Cluster == m.ID && r.ExportUID == record.Spec.ExportUID })
		if !m.Synced || !m.Reported || reports {
			return false
		}
	}
	return isRead
}
