// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"cmp"
	"fmt"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// The export table says what becomes of a ServiceExport; the first row that applies counts.
// The rows from Unavailable on are those of one exchange namespace of it. make generate copies
// it to docs/imports.md.
//
//	| state | the export | its record | copies of its EndpointSlices |
//	| Duplicate | another cluster has the id of this one | stays | stay |
//	| Unknown | it matters whether the ServiceExport or its Service exists, and the API server does not say it, or a cache is behind | stays | stay |
//	| Undefined | there is no ServiceExport, and its definition is missing, terminating or not served | stays | stay |
//	| Lost | there is no ServiceExport, the store is older than the record or the definition younger than the export, and no administrator confirmed it | stays, marked as lost | stay |
//	| Ended | there is no ServiceExport, or another one of that name | withdrawn, ended | deleted |
//	| NoService | the Service does not exist, or is terminating | withdrawn, suspended | deleted |
//	| NotExportable | the Service is of type ExternalName, or an import | withdrawn, suspended | deleted |
//	| Invalid | the namespace is Kubernetes' own, or annotations or policies allow no port or no cluster | withdrawn, suspended | deleted |
//	| InGrace | policies deny it, and its grace period has not ended | follows where it is; nobody else gets it | follow |
//	| Denied | policies deny it | withdrawn, suspended | deleted |
//	| NotEvaluated | policies could not be evaluated | stays in the scope; nobody else gets it | follow |
//	| Published | otherwise | published | follow |
//	| Unavailable | nothing can be written there, or the API server does not confirm a ServiceExport that is new there | stays | stay |
//	| Moved | its readers find the export in another exchange namespace | deleted, which states nothing | deleted |
//	| ReaderUnknown | its reader is no member now, was not removed, and no list or policy leaves it out | stays | stay |
//	| OutOfScope | its reader is outside of the scope | withdrawn, suspended; narrowed if others read it elsewhere | deleted |

// exportRow carries out a row of the export table.
type exportRow struct {
	state       string
	publication model.Publication
	applies     bool
	detail      string // why, as a condition says it
	do          func()
}

// table is the export table for one decision.
func (e *exporting) table() []exportRow {
	service, verdict := e.Local.Service, e.Local.Verdict
	unknown, lost, invalid := e.unknown(), e.lost(), textOf(cmp.Or(e.invalid, e.nowhere))
	_, refused := model.NotExportable(e.Local.Key, service)
	undefined := fmt.Sprintf("ServiceExport %s was not found, and what is published of it stays: %s", e.Local.Key, e.Live.Undefined)
	unevaluated := "policies could not be evaluated, so what is published stays as it is: " + verdict.Problem
	return []exportRow{
		{"Duplicate", model.PublicationFailed, e.Duplicate != "", e.Duplicate, e.changeNothing},
		{"Unknown", model.PublicationPending, unknown != "", unknown, e.wait},
		{"Undefined", model.PublicationPending, e.isGone() && e.Live.Undefined != "", undefined, e.wait},
		{"Lost", model.PublicationPending, lost != "", lost, e.markLost},
		{"Ended", model.PublicationNone, e.Local.Export == nil, "", e.withdraw},
		{"NoService", model.PublicationNone, service == nil || service.DeletionTimestamp != nil, invalid, e.withdraw},
		{"NotExportable", model.PublicationNone, refused != "", invalid, e.withdraw},
		{"Invalid", model.PublicationWithheld, invalid != "", invalid, e.withdrawFromKnown},
		{"InGrace", model.Published, e.isInGrace(), "", e.publishInGrace},
		{"Denied", model.PublicationWithheld, verdict.Outcome == decision.Denied, joinViolations(verdict.Violations, "; "), e.withdraw},
		{"NotEvaluated", model.PublicationPending, verdict.Outcome != decision.Allowed, unevaluated, e.keepUnevaluated},
		{"Published", model.Published, true, "", e.publish},
	}
}

// unknown is why it is not known what became of the ServiceExport; empty if it is, or if
// that does not matter.
func (e *exporting) unknown() string {
	var problem string
	switch export := e.Local.Export; {
	case e.Duplicate != "": // whatever became of it
	case e.isGone():
		problem = e.needLive().absence()
	case export != nil && e.Local.Service == nil && len(e.published) > 0:
		problem = e.needLive().serviceAbsence(export.UID)
	case export != nil && (e.losesSlice() || e.Live.Read && e.Live.Problem == ""):
		problem = e.needLive().presence(export.UID)
	}
	if problem == "" {
		return ""
	}
	return fmt.Sprintf("what is published of ServiceExport %s stays as it is: %s", e.Local.Key, problem)
}

// losesSlice reports whether a slice is gone whose copy is published. After a restore,
// caches are read again one after the other: that of the slices may have what the store has
// while that of the ServiceExports still has what it lost.
func (e *exporting) losesSlice() bool {
	existing := sets.New(model.Map(e.Local.Slices, (*discoveryv1.EndpointSlice).GetName)...)
	return slices.ContainsFunc(e.publishing, func(r *exchangev1alpha1.ExportRecord) bool {
		return !existing.HasAll(model.Map(r.Spec.Slices, exchange.CutFrom)...)
	})
}

// isGone reports whether something is to be withdrawn because there is no ServiceExport.
func (e *exporting) isGone() bool { return e.Local.Export == nil && len(e.stated()) > 0 }

// lost is why nobody deleted the ServiceExport that is gone; empty if somebody did, or an
// administrator confirmed that it is to end.
func (e *exporting) lost() string {
	if why := e.Live.lossOf(e.Local.Key, e.stated()); e.isGone() && why != "" {
		return fmt.Sprintf("ServiceExport %s was not found, and what is published of it stays: %s", e.Local.Key, why)
	}
	return ""
}

// textOf is the text of an error; empty without one.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// withdrawFromKnown publishes nothing. A selector that selects no member now, or policies
// that exclude every member, say nothing about a cluster that is no member now.
func (e *exporting) withdrawFromKnown() {
	var unreadable error
	if text, selects := e.Local.Export.Annotations[model.AnnotationExportToSelector]; selects {
		_, unreadable = model.ScopeOfSelector(text, nil)
	}
	if unreadable == nil && e.invalid == nil {
		e.leaveUnknown()
	}
}

func (e *exporting) isInGrace() (is bool) {
	if e.Local.Verdict.Outcome == decision.Denied {
		e.grace, is = graceOf(e.Local, e.Records, e.Now)
	}
	return is
}

// IsNewlyLost reports whether a decision marks a record as lost that was not marked.
func (d ExportDecision) IsNewlyLost() bool {
	return d.Plan.Lost && slices.ContainsFunc(d.Plan.CurrentRecords, func(r *exchangev1alpha1.ExportRecord) bool { return !IsEnded(r) && !r.Spec.Lost })
}
