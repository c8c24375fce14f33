// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// Records and Copies are what the exchange holds of this export.
	Records []*exchangev1alpha1.ExportRecord
	Copies  []*discoveryv1.EndpointSlice
	// Unavailable says of exchange namespaces why nothing can be written there;
	// those of ExchangeNamespaces that it does not name can be written.
	Unavailable map[string]string
	// Duplicate says that another cluster publishes under this cluster's id;
	// empty if none does.
	Duplicate string
}

// ExportFinding is what the status controller reports of publishing an export.
type ExportFinding struct {
	Publication model.Publication
	// Detail explains a Publication that is not Published; empty otherwise.
	Detail string
	// Scope is where the export goes.
	Scope model.Scope
}

// ExportDecision is what to publish of one export.
type ExportDecision struct {
	Plan    plan.PublishInput
	Finding ExportFinding
	// Retry is true if the reason for the Publication may end without an event.
	Retry bool
}

// Export decides what should stand in the exchange for one local export. First
// match wins:
//
//	another cluster has this cluster's id        nothing changes     Failed
//	there is no ServiceExport                    withdrawn           None
//	its Service cannot be exported               withdrawn           None
//	its namespace is reserved                    withdrawn           Withheld
//	its scope cannot be read or is empty         withdrawn           Withheld
//	policies deny it                             withdrawn           Withheld
//	policies could not be evaluated              stays, endpoints follow  Pending
//	an exchange namespace of the scope is unavailable   the others are written  Failed
//	otherwise                                    published           Published
func Export(v ExportView) ExportDecision {
	local := v.Local
	d := ExportDecision{Plan: plan.PublishInput{Key: local.Key, CurrentRecords: v.Records, CurrentSlices: v.Copies}}
	if v.Duplicate != "" {
		d.Plan.CurrentRecords, d.Plan.CurrentSlices = nil, nil
		d.Finding = ExportFinding{Publication: model.PublicationFailed, Detail: v.Duplicate}
		return d
	}
	if local.Export == nil {
		d.Finding.Publication = model.PublicationNone
		return d
	}
	export, err := modelExport(v.Self, v.MaintainSelectors, local)
	if err != nil {
		d.Finding = ExportFinding{Publication: model.PublicationNone, Detail: err.Error()}
		return d
	}
	if exchange.ReservedNamespace(local.Key.Namespace) {
		d.Finding = ExportFinding{Publication: model.PublicationWithheld, Detail: fmt.Sprintf(
			"Namespace %s belongs to the cluster itself, and no member imports into it; export from another namespace", local.Key.Namespace)}
		return d
	}
	scope, err := effectiveScope(local, v.Members)
	if err != nil {
		d.Finding = ExportFinding{Publication: model.PublicationWithheld, Detail: err.Error()}
		return d
	}
	switch local.Verdict.Outcome {
	case decision.Allowed:
		publish(&d, v, export, scope)
	case decision.Denied:
		d.Finding = ExportFinding{Publication: model.PublicationWithheld, Detail: violations(local.Verdict)}
	default:
		keepPublished(&d, v)
		d.Retry = true // the end of what keeps policies from being evaluated, such as a deadline, is no event
		d.Finding = ExportFinding{Publication: model.PublicationPending, Scope: scope,
			Detail: "policies could not be evaluated, so what is published stays as it is: " + local.Verdict.Problem}
	}
	return d
}

// modelExport is the local ServiceExport and its Service as package merge sees them.
func modelExport(self model.ClusterID, maintainSelectors bool, local LocalExport) (model.Export, error) {
	export, err := exchange.LocalExport(self, local.Export, local.Service)
	if err == nil && maintainSelectors {
		exchange.AddSelector(&export, local.Service)
	}
	return export, err
}

// publish writes the export where its scope allows. What stands in an exchange
// namespace that cannot be written now stays there: the scope still includes its
// readers.
func publish(d *ExportDecision, v ExportView, export model.Export, scope model.Scope) {
	record := exchange.Record(export)
	d.Plan.Record = &record
	d.Plan.Slices = sliceCopies(v.Local)
	var problems, unavailable []string
	wanted, unknown := audience(v.Self, scope, v.Members)
	for _, id := range unknown {
		problems = append(problems, fmt.Sprintf("cluster %s in annotation %s is no member of the clusterset; join it, or take it off the list", id, model.AnnotationExportTo))
	}
	for _, namespace := range wanted {
		if problem := v.Unavailable[namespace]; problem != "" {
			problems, unavailable = append(problems, problem), append(unavailable, namespace)
			continue
		}
		d.Plan.Audience = append(d.Plan.Audience, namespace)
	}
	d.Plan.CurrentRecords = outside(unavailable, d.Plan.CurrentRecords)
	d.Plan.CurrentSlices = outside(unavailable, d.Plan.CurrentSlices)
	d.Retry = len(unavailable) > 0 // a member that joins is an event
	d.Finding = ExportFinding{Publication: model.Published, Scope: scope}
	if len(problems) > 0 {
		d.Finding.Publication, d.Finding.Detail = model.PublicationFailed, strings.Join(problems, "; ")
	}
}

// keepPublished keeps the records as they are and lets the copies of endpoints
// follow: a policy engine that cannot answer must not keep traffic from the pods
// that exist now.
func keepPublished(d *ExportDecision, v ExportView) {
	for _, record := range v.Records {
		if model.IsManaged(record) && record.Spec.ExportUID == v.Local.Export.UID {
			d.Plan.Record = &record.Spec
			d.Plan.Audience = append(d.Plan.Audience, record.Namespace)
		}
	}
	if d.Plan.Record == nil { // nothing of this export is published
		d.Plan.CurrentRecords, d.Plan.CurrentSlices = nil, nil
		return
	}
	d.Plan.Slices = sliceCopies(v.Local)
}

func sliceCopies(local LocalExport) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, source := range local.Slices {
		if slice, ok := exchange.CopySlice(local.Key, source); ok {
			out = append(out, slice)
		}
	}
	return out
}

// outside leaves out the objects in some namespaces.
func outside[T metav1.Object](namespaces []string, objects []T) []T {
	return slices.DeleteFunc(slices.Clone(objects), func(o T) bool { return slices.Contains(namespaces, o.GetNamespace()) })
}

func violations(v decision.Verdict) string {
	lines := make([]string, len(v.Violations))
	for i, violation := range v.Violations {
		lines[i] = violation.String()
	}
	return strings.Join(lines, "; ")
}

// AfterWrite is the finding once the plan was applied: problems are those of the
// plan, err is that of the first write that failed.
func (f ExportFinding) AfterWrite(problems []model.Problem, err error) ExportFinding {
	switch {
	case err != nil:
		f.Publication, f.Detail = model.PublicationFailed, err.Error()
	case len(problems) > 0:
		f.Publication, f.Detail = model.PublicationFailed, problems[0].Message
	}
	return f
}

// IsFinal reports whether the export was published, or is not to be published.
func (f ExportFinding) IsFinal() bool {
	return f.Publication != model.PublicationPending && f.Publication != model.PublicationFailed
}
