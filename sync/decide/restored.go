// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"slices"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Restore is what is known of a restore of the store of this cluster's API server from a
// backup. What was created after the backup is then missing, and nobody deleted it.
type Restore struct {
	// Mark identifies the last restore; empty if none is known, and in a mesh.
	Mark string
	// Recent is true in a mesh if there was a restore so recently that some caches may
	// still have what was there before.
	Recent bool
	// Problem says why it is not known whether there was one since. Then nothing may
	// change. It has to be examined if NeedsRestore.
	Problem string
	// Exists reports whether the API server has had the ServiceExport since then; read
	// only if NeedsExists.
	Exists bool
}

// String says that there was a restore, and when it was found if that is known.
func (r Restore) String() string {
	const what = "the store of this cluster's API server was restored from a backup"
	if r.Mark == "" {
		return what
	}
	return fmt.Sprintf("%s (found at %s)", what, r.Mark)
}

// NeedsRestore reports whether Export would withdraw what is published because the
// ServiceExport, or its Service, does not exist. Then it has to be examined whether the
// store was restored, after both were not found.
func NeedsRestore(v ExportView) bool {
	return (v.Local.Export == nil || v.Local.Service == nil) && v.Duplicate == "" && len(v.published()) > 0
}

// NeedsExists reports whether v.Restore.Exists has to be read from the API server, because
// a cache may still have a ServiceExport that the restored store does not have. In a hub
// that is as long as no record says that it exists since the last restore. In a mesh the
// records are lost with the ServiceExport: one that is published again from a cache would
// be withdrawn a moment later, and what was lost would count as withdrawn.
func NeedsExists(v ExportView) bool {
	unknown := v.Restore.Mark != "" && !v.isMarked() || v.Restore.Recent && len(v.published()) == 0
	return unknown && v.Local.Export != nil && v.Duplicate == ""
}

// isMarked reports whether a record says that the ServiceExport existed since the last
// restore. That of one exchange namespace is enough: another one may be unavailable.
func (v ExportView) isMarked() bool {
	return slices.ContainsFunc(v.published(), func(r *exchangev1alpha1.ExportRecord) bool {
		return r.Annotations[model.AnnotationStoreRestored] == v.Restore.Mark
	})
}

// lostWithStore says why an object that is missing may have been lost with the store;
// empty if it was not. It is true if that may end without an event.
func (v ExportView) lostWithStore() (why string, retry bool) {
	switch {
	case v.Restore.Problem != "":
		return v.Restore.Problem, true
	case v.Restore.Mark != "" && NeedsRestore(v) && !v.isMarked():
		return fmt.Sprintf("%s, and may have lost it", v.Restore), false
	}
	return "", false
}

// lostOfExport is lostExport for a ServiceExport that the cache has: it, or its Service,
// may be lost.
func lostOfExport(v ExportView) (problem string, retry bool) {
	switch why, retry := v.lostWithStore(); {
	case v.Restore.Problem != "":
		return fmt.Sprintf("what is published of ServiceExport %s stays: %s", v.Local.Key, why), retry
	case NeedsExists(v) && !v.Restore.Exists:
		return fmt.Sprintf("what is published of ServiceExport %s stays as it is: %s, "+
			"and the API server is not known to have this ServiceExport since then; it is read again in a moment", v.Local.Key, v.Restore), true
	case why != "":
		return fmt.Sprintf("Service %s was not found, and what is published of it stays: %s; create it again, and to withdraw the export delete the ServiceExport then", v.Local.Key, why), retry
	}
	return "", false
}

// markExists has the record say that the ServiceExport exists since the last restore.
// From then on its absence is a withdrawal again.
func markExists(d *ExportDecision, v ExportView) {
	if d.Plan.Record == nil || v.Restore.Mark == "" {
		return
	}
	if d.Plan.Annotations == nil {
		d.Plan.Annotations = map[string]string{}
	}
	d.Plan.Annotations[model.AnnotationStoreRestored] = v.Restore.Mark
}
