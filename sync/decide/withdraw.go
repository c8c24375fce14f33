// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Definition is the CustomResourceDefinition of ServiceExports, as read from the API
// server after the ServiceExport was not found.
type Definition struct {
	// Problem says why no ServiceExport can exist, or why that is not known: the
	// definition is missing, is being deleted, or could not be read. Empty otherwise.
	Problem string
	// Created is when the definition was created; zero if not known.
	Created time.Time
}

// NeedsDefinition reports whether Export would withdraw what is published because
// there is no ServiceExport. Then v.Definition has to be read.
func NeedsDefinition(v ExportView) bool {
	return v.Local.Export == nil && v.Duplicate == "" && len(v.published()) > 0
}

// published are the records by which members may know the export: the live ones, and
// those that somebody deleted.
func (v ExportView) published() []*exchangev1alpha1.ExportRecord {
	live := slices.DeleteFunc(slices.Clone(v.Records), func(r *exchangev1alpha1.ExportRecord) bool { return !isLive(r) })
	return append(live, v.Lost...)
}

// lostExport says why a ServiceExport that does not exist was not deleted by anybody
// who wanted to end the export; empty if it was. It is true if that may end without
// an event.
//
// Somebody who deletes the definition deletes all ServiceExports with it. While it
// is being deleted, or missing, their absence says nothing. Once there is a new
// definition, no ServiceExport that is older than it can exist, so the absence of an
// older one says nothing either: a definition that is deleted and applied again in
// one second must not withdraw everything.
func lostExport(v ExportView) (problem string, retry bool) {
	if !NeedsDefinition(v) {
		return "", false
	}
	const stays = "ServiceExport %s was not found, and what is published of it stays: "
	if v.Definition.Problem != "" {
		return fmt.Sprintf(stays+"%s", v.Local.Key, v.Definition.Problem), true
	}
	for _, record := range v.published() {
		if record.Spec.ExportedAt.Time.Before(v.Definition.Created) {
			return fmt.Sprintf(stays+"it was created at %s, and was deleted with the CustomResourceDefinition of ServiceExports, which was created again at %s; "+
				"create it again, and to withdraw the export delete it then", v.Local.Key,
				record.Spec.ExportedAt.UTC().Format(time.RFC3339), v.Definition.Created.UTC().Format(time.RFC3339)), false
		}
	}
	if why, retry := v.lostWithStore(); why != "" {
		return fmt.Sprintf(stays+"%s; create it again, and to withdraw the export delete it then", v.Local.Key, why), retry
	}
	return "", false
}

// isLive reports whether a record is this cluster's own and publishes an export.
func isLive(record *exchangev1alpha1.ExportRecord) bool {
	return model.IsManaged(record) && !record.Spec.Withdrawn
}

const (
	// collectAfter is how old a statement of withdrawal becomes at least. An hour is
	// longer than a member needs to read it, and to report what came of it.
	collectAfter = time.Hour
	// collectRetry is how soon a statement is examined again that is old enough and
	// that a member may not have followed yet.
	collectRetry = 10 * time.Minute
)

// NeedsReports reports whether a statement of withdrawal exists, which may be deleted
// once no member reports anything about the export.
func NeedsReports(v ExportView) bool {
	return slices.ContainsFunc(v.Records, func(r *exchangev1alpha1.ExportRecord) bool { return r.Spec.Withdrawn })
}

// collect chooses the statements of withdrawal that no member needs any more, and
// when to examine the others. A statement that is deleted too early does no harm:
// an importer that has not read it keeps what it imported, held.
func collect(d *ExportDecision, v ExportView) {
	for _, record := range d.Plan.CurrentRecords {
		if !model.IsManaged(record) || !record.Spec.Withdrawn || slices.Contains(d.Plan.Audience, record.Namespace) {
			continue
		}
		wait := collectAfter - v.Now.Sub(statedAt(record, v.Now))
		switch {
		case wait > 0:
			wait = min(wait, collectAfter) // the API server's clock may be ahead
		case isFollowed(d, v, record):
			d.Plan.Collect = append(d.Plan.Collect, record.Namespace)
			continue
		default:
			wait = collectRetry
		}
		if d.Again == 0 || wait < d.Again {
			d.Again = wait
		}
	}
}

// statedAt is when a statement of withdrawal was written; now if that is not known.
// It is the time of the last write by Comity, which the API server keeps for every
// field manager: an annotation would have to be kept by each plan, and would be one
// more value that somebody may change.
func statedAt(record *exchangev1alpha1.ExportRecord, now time.Time) time.Time {
	at := now
	for _, entry := range record.ManagedFields {
		if entry.Manager == model.FieldOwner && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" && entry.Time != nil {
			at = entry.Time.Time
		}
	}
	return at
}

// isFollowed reports whether every reader of a statement of withdrawal was read
// completely, and none reports anything about the export. The reports of those to
// which the same export is published in another exchange namespace do not count.
func isFollowed(d *ExportDecision, v ExportView, record *exchangev1alpha1.ExportRecord) bool {
	shared, uid := model.ExchangeNamespace(v.Self), record.Spec.ExportUID
	published := d.Plan.Record != nil && d.Plan.Record.ExportUID == uid
	for _, m := range v.Members {
		scoped := model.ScopedExchangeNamespace(v.Self, m.ID)
		if record.Namespace != shared && record.Namespace != scoped {
			continue
		}
		if !m.Synced || !m.Reported {
			return false
		}
		elsewhere := published && (slices.Contains(d.Plan.Audience, shared) || slices.Contains(d.Plan.Audience, scoped))
		if !elsewhere && slices.ContainsFunc(v.Reports, func(r model.Report) bool { return r.Cluster == m.ID && r.ExportUID == uid }) {
			return false
		}
	}
	return true
}
