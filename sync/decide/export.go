// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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
	// IdentityLabels are the namespace labels that are published.
	IdentityLabels []string
	// Records and Copies are what the exchange holds of this export.
	Records []*exchangev1alpha1.ExportRecord
	Copies  []*discoveryv1.EndpointSlice
	// Lost are records of this export that this process published, and that somebody
	// deleted, in exchange namespaces that can be written. LostElsewhere is true if there
	// are others in exchange namespaces that cannot.
	Lost          []*exchangev1alpha1.ExportRecord
	LostElsewhere bool
	// Reports are what the members report of importing it; read only if NeedsReports.
	Reports []model.Report
	// Definition is that of ServiceExports; read only if NeedsDefinition.
	Definition Definition
	// Restore is what is known of a restore of this cluster's own store; the zero value
	// unless the exchange is a hub, which keeps what that store lost.
	Restore Restore
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
	// Retry is true if the reason for the Publication may end without an event.
	Retry bool
	// Again is after how long to decide again: when the grace of an export that policies
	// deny ends, or whether the statement of a withdrawal is still needed; zero for never.
	Again time.Duration
}

// Export decides what should be in the exchange for one local export. First
// match wins:
//
//	another cluster has this cluster's id        nothing changes     Failed
//	the ServiceExport was lost, not deleted      nothing changes     Pending
//	its Service was lost, not deleted, or the ServiceExport is lost and still in the cache
//	                                             nothing changes     Pending
//	there is no ServiceExport                    withdrawn           None
//	its Service cannot be exported               withdrawn           None
//	its namespace is reserved                    withdrawn           Withheld
//	its ports cannot be read, or do not exist    withdrawn           Withheld
//	its scope cannot be read or is empty, also
//	because policies exclude every cluster of it withdrawn           Withheld
//	policies deny it, after a grace period       stays in scope until that ends      Published
//	policies deny it                             withdrawn           Withheld
//	policies could not be evaluated              stays in scope, endpoints follow  Pending
//	an exchange namespace of the scope is unavailable   the others are written  Failed
//	otherwise                                    published           Published
//
// What is published outside of the scope, or of ports that are no longer shared, is
// withdrawn in every case but the first three: both are narrowed to keep somebody from
// reading, which nothing may delay. The clusters that policies exclude
// (decision.Verdict.Excluded) are outside of the scope.
func Export(v ExportView) ExportDecision {
	d := publication(v)
	markExists(&d, v)
	d.Retry = d.Retry || v.LostElsewhere
	collect(&d, v)
	return d
}

func publication(v ExportView) ExportDecision {
	local := v.Local
	d := ExportDecision{Plan: plan.PublishInput{Key: local.Key, CurrentRecords: v.Records, CurrentSlices: v.Copies, Lost: v.Lost}}
	if v.Duplicate != "" {
		nothingChanges(&d)
		d.Finding = ExportFinding{Publication: model.PublicationFailed, Detail: v.Duplicate}
		return d
	}
	if local.Export == nil {
		d.Finding.Publication = model.PublicationNone
		if lost, retry := lostExport(v); lost != "" {
			keepLost(&d, lost, retry)
		}
		return d
	}
	if lost, retry := lostOfExport(v); lost != "" {
		keepLost(&d, lost, retry)
		return d
	}
	export, err := modelExport(v.Self, v.MaintainSelectors, local)
	if err != nil {
		d.Finding = notExported(err)
		return d
	}
	if exchange.ReservedNamespace(local.Key.Namespace) {
		d.Finding = ExportFinding{Publication: model.PublicationWithheld, Detail: fmt.Sprintf(
			"Namespace %s belongs to the cluster itself, and no member imports into it; export from another namespace", local.Key.Namespace)}
		return d
	}
	excluded := exclusionOf(v)
	scope, err := publishedScope(v.Self, local, v.Members, excluded.clusters)
	if err != nil {
		d.Finding = ExportFinding{Publication: model.PublicationWithheld, Detail: err.Error()}
		return d
	}
	switch local.Verdict.Outcome {
	case decision.Allowed:
		publish(&d, v, export, scope)
		excluded.announce(&d, v.Now)
	case decision.Denied:
		if g, ok := graceOf(local, v.Records, v.Now); ok {
			publishInGrace(&d, v, export, scope, g)
			return d
		}
		d.Finding = ExportFinding{Publication: model.PublicationWithheld, Detail: violations(local.Verdict)}
	default:
		keepPublished(&d, v, scope)
		if d.Plan.Record != nil {
			keepShared(&d, local)
		}
		since, _ := deniedSince(local, v.Records)
		d.Plan.Annotations = sinceAnnotations(since) // a grace period continues
		d.Retry = true                               // the end of what keeps policies from being evaluated, such as a deadline, is no event
		d.Finding = ExportFinding{Publication: model.PublicationPending, Scope: scope,
			Detail: "policies could not be evaluated, so what is published stays as it is: " + local.Verdict.Problem}
	}
	return d
}

// keepLost changes nothing that is published of an export, because an object that it
// needs was lost.
func keepLost(d *ExportDecision, lost string, retry bool) {
	nothingChanges(d)
	d.Finding, d.Retry = ExportFinding{Publication: model.PublicationPending, Detail: lost}, retry
}

// notExported says why modelExport failed: there is nothing that can be exported, or its
// annotation forbids to.
func notExported(err error) ExportFinding {
	if _, invalid := errors.AsType[*model.NotExportableError](err); invalid {
		return ExportFinding{Publication: model.PublicationNone, Detail: err.Error()}
	}
	return ExportFinding{Publication: model.PublicationWithheld, Detail: err.Error()}
}

func nothingChanges(d *ExportDecision) {
	d.Plan.CurrentRecords, d.Plan.CurrentSlices, d.Plan.Lost = nil, nil, nil
}

// modelExport is the local ServiceExport and its Service as package merge sees them.
func modelExport(self model.ClusterID, maintainSelectors bool, local LocalExport) (model.Export, error) {
	export, err := exchange.LocalExport(self, local.Export, local.Service)
	if err == nil && maintainSelectors {
		exchange.AddSelector(&export, local.Service)
	}
	return export, err
}

// publish writes the export where its scope allows.
func publish(d *ExportDecision, v ExportView, export model.Export, scope model.Scope) {
	var problems []string
	wanted, unknown := audience(v.Self, scope, v.Members)
	for _, id := range unknown {
		problems = append(problems, fmt.Sprintf("cluster %s in annotation %s is not a member of the clusterset; join it, or remove it from the list", id, model.AnnotationExportTo))
	}
	for _, namespace := range wanted {
		if problem := v.Unavailable[namespace]; problem != "" {
			problems = append(problems, problem)
			d.Retry = true // a member that joins is an event
			continue
		}
		d.Plan.Audience = append(d.Plan.Audience, namespace)
	}
	leaveUnavailable(d, wanted, scope)
	if more := planRecord(d, v, export); more > 0 {
		names := len(d.Plan.Record.Slices)
		problems = append(problems, fmt.Sprintf("Service %s has %d EndpointSlices, of which the first %d by name are published; "+
			"split the Service, or give its EndpointSlices more endpoints each", v.Local.Key, names+more, names))
	}
	d.Finding = ExportFinding{Publication: model.Published, Scope: scope}
	if len(problems) > 0 {
		d.Finding.Publication, d.Finding.Detail = model.PublicationFailed, strings.Join(problems, "; ")
	}
}

// planRecord plans the record of the export as it is now, with the copies of its slices.
// It returns how many more slices there are than a record may name.
func planRecord(d *ExportDecision, v ExportView, export model.Export) (more int) {
	d.Plan.Slices, export.Slices, more = sliceCopies(v.Local, sharedPorts(v.Local))
	export.Identity = identity(v.Local.Namespace, v.IdentityLabels)
	record := exchange.Record(export)
	d.Plan.Record = &record
	return more
}

// leaveUnavailable leaves what is published in an exchange namespace that cannot be
// written now: the scope still includes its readers. If that is the namespace of
// all members, what its readers find elsewhere stays there, too.
func leaveUnavailable(d *ExportDecision, wanted []string, scope model.Scope) {
	d.Plan.Moved = scope.All()
	if d.Plan.Moved && len(d.Plan.Audience) == 0 {
		nothingChanges(d)
		return
	}
	unavailable := slices.DeleteFunc(slices.Clone(wanted), func(ns string) bool { return slices.Contains(d.Plan.Audience, ns) })
	d.Plan.CurrentRecords = outside(unavailable, d.Plan.CurrentRecords)
	d.Plan.CurrentSlices = outside(unavailable, d.Plan.CurrentSlices)
}

// keepPublished keeps the record as it is wherever its readers are in scope; with
// keepShared the copies of endpoints follow: a policy engine that cannot answer must not
// keep traffic from the pods that exist now. If the scope became narrower, the
// members that could read the record find it in their own exchange namespaces.
func keepPublished(d *ExportDecision, v ExportView, scope model.Scope) {
	readable := map[string]bool{} // exchange namespaces with a record of this export
	for _, record := range v.Records {
		if isLive(record) && record.Spec.ExportUID == v.Local.Export.UID {
			readable[record.Namespace] = true
			spec := record.Spec
			d.Plan.Record = &spec
		}
	}
	byAll := readable[model.ExchangeNamespace(v.Self)]
	var untouched []string
	for _, namespace := range namespacesInScope(v, scope) {
		if v.Unavailable[namespace] == "" && (readable[namespace] || byAll && !scope.All()) {
			d.Plan.Audience = append(d.Plan.Audience, namespace)
		} else {
			untouched = append(untouched, namespace) // nothing of this export was published there
		}
	}
	d.Plan.CurrentRecords = outside(untouched, d.Plan.CurrentRecords)
	d.Plan.CurrentSlices = outside(untouched, d.Plan.CurrentSlices)
	d.Plan.Lost = outside(untouched, d.Plan.Lost)
}

// sharedPorts are the ports that the local export shares.
func sharedPorts(local LocalExport) model.PortSelection {
	ports, _, err := exchange.Ports(local.Export, local.Service)
	if err != nil {
		return model.PortSelection{}
	}
	return ports
}

// keepShared takes from the record that is kept the ports that are shared no longer,
// and adds the slices, with no other port than the record: what policies did not
// evaluate yet is not published. A record that is left without a port is withdrawn.
func keepShared(d *ExportDecision, local LocalExport) {
	record, shared := d.Plan.Record, sharedPorts(local)
	ports := slices.DeleteFunc(slices.Clone(record.Ports), func(p mcsv1beta1.ServicePort) bool { return !shared.Contains(p.Name) })
	if len(ports) == 0 && !shared.All() {
		d.Plan.Record, d.Plan.Audience = nil, nil
		return
	}
	record.Ports = ports
	record.Targets = slices.DeleteFunc(slices.Clone(record.Targets), func(t exchangev1alpha1.Target) bool {
		return !slices.ContainsFunc(ports, func(p mcsv1beta1.ServicePort) bool { return p.Port == t.Port && p.Protocol == t.Protocol })
	})
	if len(ports) > 0 {
		names := make([]string, len(ports))
		for i, p := range ports {
			names[i] = p.Name
		}
		shared = model.PortsNamed(names...)
	}
	d.Plan.Slices, record.Slices, _ = sliceCopies(local, shared)
}

// namespacesInScope are the exchange namespaces of the scope and, if that is every
// member, all in which something is published: it includes their readers.
func namespacesInScope(v ExportView, scope model.Scope) []string {
	out, _ := audience(v.Self, scope, v.Members)
	if scope.All() {
		for _, record := range v.Records {
			out = append(out, record.Namespace)
		}
		for _, slice := range v.Copies {
			out = append(out, slice.Namespace)
		}
		slices.Sort(out)
		out = slices.Compact(out)
	}
	return out
}

// sliceCopies returns the copies to publish of the slices of the Service, with the
// ports that are shared, the names of these slices, sorted, and how many more there are
// than a record may name.
func sliceCopies(local LocalExport, shared model.PortSelection) (copies []*discoveryv1.EndpointSlice, names []string, more int) {
	sources := slices.SortedFunc(slices.Values(local.Slices), func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	for _, source := range sources {
		slice, ok := exchange.CopySlice(local.Key, source, shared)
		switch {
		case !ok:
		case len(names) == exchange.MaxSliceNames:
			more++
		default:
			copies, names = append(copies, slice), append(names, source.Name)
		}
	}
	return copies, names, more
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

// IsDone reports whether all that can be published now was, given what AfterWrite is
// given. What is missing otherwise is published after an event: a scope that names a
// cluster that did not join yet keeps nothing else waiting.
func (d ExportDecision) IsDone(problems []model.Problem, err error) bool {
	return err == nil && len(problems) == 0 && !d.Retry
}
