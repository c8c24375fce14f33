// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/policies/decision"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Live is what the API server answered about one ServiceExport. A cache may be behind the
// API server, or have what a restored store lost, so nothing is published for the first
// time, and no absence becomes a withdrawal, because of a cache alone. The zero value
// means that the API server was not asked.
type Live struct {
	// Read is true if the API server was asked. Problem says why it did not answer; empty
	// if it did.
	Read    bool
	Problem string
	// Export is the UID of the ServiceExport; empty if there is none, or if it is
	// terminating.
	Export types.UID
	// HasService reports whether the Service exists; read only if the ServiceExport does,
	// and a cache does not have the Service.
	HasService bool
	// Undefined says why no ServiceExport can exist: the definition is missing,
	// terminating or not served; empty otherwise. Defined is when it was created, Version
	// the resourceVersion of the store. All are read only if there is no ServiceExport.
	Undefined string
	Defined   time.Time
	Version   string
}

// unless says why it is not known that what a cache has is so; empty if the API server agrees.
func (l Live) unless(agrees bool, otherwise string) string {
	switch {
	case !l.Read:
		return "the API server was not asked yet"
	case l.Problem != "" || agrees:
		return l.Problem
	}
	return otherwise + ", and the cache of the agent is behind"
}

// absence says why it is not known that there is no ServiceExport; empty if there is none.
func (l Live) absence() string { return l.unless(l.Export == "", "the API server has it") }

// presence says why it is not known that exactly this ServiceExport exists.
func (l Live) presence(uid types.UID) string {
	return l.unless(l.Export == uid, "the API server does not have this ServiceExport")
}

// serviceAbsence says why it is not known that the ServiceExport has no Service.
func (l Live) serviceAbsence(uid types.UID) string {
	return cmp.Or(l.presence(uid), l.unless(!l.HasService, "the API server has its Service"))
}

// loss says why an absent ServiceExport was not deleted by anybody who wanted to end the
// export; empty if it was. Whoever deletes the definition deletes all ServiceExports with
// it, and no ServiceExport is older than its definition.
func (l Live) loss(exportedAt time.Time, version string) string {
	switch {
	case model.IsOlderVersion(l.Version, version):
		return fmt.Sprintf("the API server was restored from a backup: it is at resourceVersion %s, the ServiceExport was at %s", l.Version, version)
	case exportedAt.Before(l.Defined):
		return fmt.Sprintf("it was created at %s, and deleted with the CustomResourceDefinition, which was created again at %s",
			exportedAt.UTC().Format(time.RFC3339), l.Defined.UTC().Format(time.RFC3339))
	}
	return ""
}

// NeedsOwnLive reports whether Own needs what the API server says of an export that is listed:
// something is missing in the cache.
func NeedsOwnLive(local LocalExport) bool { return local.Export == nil || local.Service == nil }

// lossOf is loss for the ServiceExport key of records, with what to do; empty, too, if one of them
// states that its export ended, or an administrator confirmed that it is to end.
func (l Live) lossOf(key types.NamespacedName, records []*exchangev1alpha1.ExportRecord) string {
	why := ""
	for _, r := range records {
		switch {
		case IsEnded(r), r.Spec.Lost && r.Annotations[model.AnnotationConfirmLost] == "true":
			return ""
		case r.Spec.Lost:
			why = cmp.Or(why, "its record is marked as lost")
		default:
			why = cmp.Or(why, l.loss(r.Spec.ExportedAt.Time, r.Spec.ExportVersion))
		}
	}
	if why == "" {
		return ""
	}
	return fmt.Sprintf("nobody deleted it: %s; create it again, or run kubectl comity confirm lost %s if it is to end", why, key)
}

// Own is this cluster's own export as a source of an import: what ServiceExport and Service
// say, and then the policies. Nothing may change of what the import lists, as entry, and the
// API server did not confirm. Records are what the exchange holds of it, read only if what is
// listed has no ServiceExport, or policies deny it.
func Own(local LocalExport, entry model.Entry, listed bool, live Live, records []*exchangev1alpha1.ExportRecord, now time.Time) OwnSource {
	absent, problem := model.SourceSuspended, ""
	switch {
	case local.Export == nil:
		// The list has no version of the store, and the import may be decided before a record is marked.
		listed := &exchangev1alpha1.ExportRecord{Spec: exchangev1alpha1.ExportRecordSpec{ExportedAt: metav1.NewTime(entry.CreatedAt)}}
		own := model.Without(records, func(r *exchangev1alpha1.ExportRecord) bool { return r.Spec.ExportUID != entry.UID })
		absent, problem = model.SourceEnded, cmp.Or(live.absence(), live.Undefined, live.lossOf(local.Key, append(own, listed)))
	case local.Service == nil:
		problem = live.serviceAbsence(local.Export.UID)
	}
	switch {
	case problem != "" && listed:
		return OwnSource{State: model.SourceNotRead, Why: problem}
	case NeedsOwnLive(local):
		return OwnSource{State: absent}
	}
	switch local.Verdict.Outcome {
	case decision.Allowed:
		return OwnSource{State: model.SourcePublished}
	case decision.Denied:
		if g, ok := graceOf(local, records, now); ok {
			return OwnSource{State: model.SourcePublished, Until: g.until}
		}
		return OwnSource{State: model.SourceSuspended, Why: "policies of this cluster deny it"}
	}
	return OwnSource{State: model.SourceNotRead, Why: "its policies could not be evaluated: " + local.Verdict.Problem}
}
