// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// LocalExport is what this cluster has of one of its own exports.
type LocalExport struct {
	Key types.NamespacedName
	// Export is nil if there is none, or if it is being deleted. Then Service and
	// Slices are not read.
	Export *mcsv1beta1.ServiceExport
	// Service and Namespace are nil if they do not exist.
	Service   *corev1.Service
	Namespace *corev1.Namespace
	// Slices are those of the Service.
	Slices []*discoveryv1.EndpointSlice
	// Verdict is the answer of the policies to Export; the zero value if there is
	// no Export.
	Verdict decision.Verdict
}

// ExportView is what this cluster knows when it publishes one export.
type ExportView struct {
	Local LocalExport
	Self  model.ClusterID
	// MaintainSelectors publishes the selector of the Service too.
	MaintainSelectors bool
	// Members are the other members.
	Members []model.Member
	// IdentityLabels are the namespace labels that are published.
	IdentityLabels []string
	// Removed are the clusters that an administrator removed.
	Removed []model.ClusterID
	// Records and Copies are what the exchange holds of this export. Own is true if all of
	// it is this cluster's own, whatever managedFields say: its Lease is there.
	Records []*exchangev1alpha1.ExportRecord
	Copies  []*discoveryv1.EndpointSlice
	Own     bool
	// Reports are what the members report of importing it; read only if a record IsEnded. So is
	// CollectBefore: statements that StatementOrder sorts before it exceed MaxEnded.
	Reports       []model.Report
	CollectBefore string
	// Live is read only after ExportDecision.NeedsLive.
	Live Live
	// Now is this cluster's time.
	Now time.Time
	// Unavailable says of exchange namespaces why nothing can be written there;
	// those of ExchangeNamespaces that it does not name can be written.
	Unavailable map[string]string
	// Duplicate says that another cluster publishes under this cluster's id;
	// empty if none does.
	Duplicate string
}

// ExportFinding is what the status controller reports of publishing an export.
type ExportFinding struct {
	// State is the row of the export table that applies, in the words of the docs.
	State       string
	Publication model.Publication
	// Detail explains a Publication that is not Published; empty otherwise.
	Detail string
	// Scope is where the export goes.
	Scope model.Scope
	// WithdrawnAt is when the export will be withdrawn, which policies deny; zero if it
	// is not published, or not denied; or when the first of the clusters loses it that
	// policies exclude.
	WithdrawnAt time.Time
}

// ExportDecision is what to publish of one export.
type ExportDecision struct {
	Plan    plan.PublishInput
	Finding ExportFinding
	// NeedsLive is true if v.Live has to be read, and Export called again: without it
	// something is neither published nor withdrawn.
	NeedsLive bool
	// Retry is true if the reason for the Publication may end without an event.
	Retry bool
	// Again is after how long to decide again: when the grace of an export that policies
	// deny ends, or whether the statement of a withdrawal is still needed; zero for never.
	Again time.Duration
}

// Export decides what should be in the exchange for one local export: what the first row
// of the export table says that applies. What is published outside of the scope, or of ports
// that are no longer shared, is withdrawn in each row but those in which the record stays:
// both are narrowed to keep somebody from reading, which nothing may delay.
func Export(v ExportView) ExportDecision {
	e := newExporting(v)
	for _, row := range e.table() {
		if row.applies {
			e.d.Finding = ExportFinding{State: row.state, Publication: row.publication, Detail: row.detail}
			row.do()
			break
		}
	}
	e.annotate()
	e.keepReplaced()
	e.collect()
	return e.d
}

// exporting is a decision while it is made. Its Records are the own ones alone.
type exporting struct {
	ExportView
	d ExportDecision
	// publishing are the records that publish this ServiceExport, published their exchange namespaces.
	publishing []*exchangev1alpha1.ExportRecord
	published  map[string]bool
	// export is what is to be published; invalid says why that is nothing.
	export  model.Export
	invalid error
	// scope is where; nowhere says why that is in no cluster.
	scope   model.Scope
	nowhere error
	// excluded are the clusters to which it is not published, though its scope has them;
	// remembered those of which a record says so.
	excluded, remembered []string
	grace                grace
	// problems are why not all of the scope is published.
	problems []string
}

func newExporting(v ExportView) *exporting {
	e := &exporting{ExportView: v, published: map[string]bool{}}
	e.d.Plan = plan.PublishInput{Key: v.Local.Key, Annotations: map[string]string{}, CurrentRecords: v.Records, CurrentSlices: v.Copies, Own: v.Own, Now: v.Now}
	e.Records = model.Without(v.Records, func(r *exchangev1alpha1.ExportRecord) bool { return !e.d.Plan.IsOwn(r) })
	e.d.Retry = len(e.Records) < len(v.Records) // the Lease may be read soon
	if v.Local.Export == nil {
		return e
	}
	e.d.Plan.Exists = v.Local.Export.UID
	e.publishing = publishing(v.Local.Export, e.Records)
	for _, record := range e.publishing {
		e.published[record.Namespace] = true
	}
	e.export, e.invalid = exchange.LocalExport(v.Self, v.Local.Export, v.Local.Service, v.MaintainSelectors)
	if e.invalid == nil && exchange.ReservedNamespace(v.Local.Key.Namespace) {
		e.invalid = errors.New("Namespace " + v.Local.Key.Namespace + " belongs to the cluster itself, and no member imports into it; export from another namespace")
	}
	if e.invalid == nil {
		e.exclude()
		e.scope, e.nowhere = e.publishedScope()
	}
	return e
}

// publishing are the records that publish a ServiceExport; none if that is nil.
func publishing(export *mcsv1beta1.ServiceExport, records []*exchangev1alpha1.ExportRecord) []*exchangev1alpha1.ExportRecord {
	return model.Without(records, func(r *exchangev1alpha1.ExportRecord) bool {
		return export == nil || r.Spec.Withdrawn || r.Spec.ExportUID != export.UID
	})
}

// stated are the records that would say something else if there were no ServiceExport.
func (e *exporting) stated() []*exchangev1alpha1.ExportRecord {
	return model.Without(e.Records, IsEnded)
}

// needLive is e.Live, and has it read.
func (e *exporting) needLive() Live {
	e.d.NeedsLive = e.d.NeedsLive || !e.Live.Read
	return e.Live
}

// changeNothing leaves everything as it is.
func (e *exporting) changeNothing() { e.d.Plan.CurrentRecords, e.d.Plan.CurrentSlices = nil, nil }

// wait changes nothing, and decides again soon: no event may end what is waited for.
func (e *exporting) wait() {
	e.changeNothing()
	e.d.Retry = true
}

// withdraw publishes nothing.
func (e *exporting) withdraw() {}

// markLost changes nothing but the mark of the records.
func (e *exporting) markLost() {
	e.d.Plan.Lost, e.d.Plan.CurrentSlices = true, nil
}

// leave leaves what is in some exchange namespaces as it is.
func (e *exporting) leave(namespaces ...string) {
	p := &e.d.Plan
	p.CurrentRecords = model.Without(p.CurrentRecords, func(r *exchangev1alpha1.ExportRecord) bool { return slices.Contains(namespaces, r.Namespace) })
	p.CurrentSlices = model.Without(p.CurrentSlices, func(s *discoveryv1.EndpointSlice) bool { return slices.Contains(namespaces, s.Namespace) })
}

// keepReplaced leaves the record of an earlier ServiceExport as it is until the API server
// says that there is another one now. Where the other one is published, it said so.
func (e *exporting) keepReplaced() {
	for _, record := range e.stated() {
		replaced := e.Local.Export != nil && record.Spec.ExportUID != e.Local.Export.UID && !slices.Contains(e.d.Plan.Audience, record.Namespace)
		if replaced && slices.Contains(e.d.Plan.CurrentRecords, record) && e.needLive().presence(e.Local.Export.UID) != "" {
			e.leave(record.Namespace)
			e.d.Retry = true
		}
	}
}

func joinViolations(violations []decision.Violation, separator string) string {
	return strings.Join(model.Map(violations, decision.Violation.String), separator)
}

// AfterWrite is the finding once the plan was applied: problems are those of the plan, err is
// that of the first write that failed. Done is true if all that can be published now was. What
// is missing otherwise is published after an event: a scope that names a cluster that did not
// join yet keeps nothing else waiting.
func (d ExportDecision) AfterWrite(problems []model.Problem, err error) (found ExportFinding, done bool) {
	if found = d.Finding; err == nil && len(problems) > 0 {
		err = errors.New(problems[0].Message)
	}
	if err != nil {
		found.Publication, found.Detail = model.PublicationFailed, err.Error()
	}
	return found, err == nil && !d.Retry
}
