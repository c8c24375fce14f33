// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// publish writes the export where its scope allows.
func (e *exporting) publish() {
	problems := e.problems
	wanted, unknown := audience(e.Self, e.scope, e.Members)
	for _, id := range unknown {
		problems = append(problems, fmt.Sprintf("cluster %s in annotation %s is not a member of the clusterset; join it, or remove it from the list", id, model.AnnotationExportTo))
	}
	for _, namespace := range wanted {
		if problem := e.unwritable(namespace); problem != "" {
			problems, e.d.Retry = append(problems, problem), true // only a member that joins is an event
			e.leave(namespace)
			continue
		}
		e.d.Plan.Audience = append(e.d.Plan.Audience, namespace)
	}
	// If the scope is every member, what its readers find elsewhere stays there, too, as
	// long as the exchange namespace of all members is unavailable.
	if e.d.Plan.Moved = e.scope.All(); e.d.Plan.Moved && len(e.d.Plan.Audience) == 0 {
		e.changeNothing()
	}
	e.leaveUnknown()
	if more := e.planRecord(); more > 0 {
		names := len(e.d.Plan.Record.Slices)
		problems = append(problems, fmt.Sprintf("Service %s has %d EndpointSlices, of which the first %d by name are published; "+
			"split the Service, or give its EndpointSlices more endpoints each", e.Local.Key, names+more, names))
	}
	e.d.Finding.Scope = e.scope
	if len(problems) > 0 {
		e.d.Finding.Publication, e.d.Finding.Detail = model.PublicationFailed, strings.Join(problems, "; ")
	}
	if !e.grace.until.IsZero() {
		e.announce()
	}
}

// unwritable says why the export cannot be written into an exchange namespace of its
// scope; empty if it can. It is published for the first time only if the API server has
// the ServiceExport: a cache may have what a restored store lost.
func (e *exporting) unwritable(namespace string) string {
	if problem := e.Unavailable[namespace]; problem != "" || e.published[namespace] {
		return problem
	}
	if len(e.Members) == 0 && len(e.Removed) > 0 { // who may still read what is for every member
		return fmt.Sprintf("ServiceExport %s is not published: every other cluster was removed", e.Local.Key)
	}
	if problem := e.needLive().presence(e.Local.Export.UID); problem != "" {
		return fmt.Sprintf("ServiceExport %s is not published in %s yet: %s", e.Local.Key, namespace, problem)
	}
	return ""
}

// planRecord plans the record of the export as it is now, with the copies of its slices.
// It returns how many more slices there are than a record may name.
func (e *exporting) planRecord() (more int) {
	export := e.export
	export.Identity = identity(e.Local.Namespace, e.IdentityLabels)
	record := exchange.Record(export)
	record.ExportVersion = e.Local.Export.ResourceVersion
	e.d.Plan.Record = &record
	return e.planSlices(e.sharedPorts())
}

// keepPublished keeps the record as it is wherever its readers are in scope; with
// keepShared the copies of endpoints follow: a policy engine that cannot answer must not
// keep traffic from the pods that exist now. If the scope became narrower, the
// members that could read the record find it in their own exchange namespaces.
func (e *exporting) keepPublished() {
	for _, record := range e.publishing {
		spec := record.Spec
		spec.Lost = false
		e.d.Plan.Record = &spec
	}
	byAll := e.published[model.ExchangeNamespace(e.Self)] && !e.scope.All()
	for _, namespace := range e.namespacesInScope() {
		if (e.published[namespace] || byAll) && e.unwritable(namespace) == "" {
			e.d.Plan.Audience = append(e.d.Plan.Audience, namespace)
		} else {
			e.leave(namespace) // nothing of this export was published there
		}
	}
	e.leaveUnknown()
	e.d.Finding.Scope = e.scope
}

// publishInGrace publishes an export that is denied as it is now, but to nobody who
// cannot read it already, and decides again when its grace ends.
func (e *exporting) publishInGrace() {
	if e.keepPublished(); e.d.Plan.Record != nil {
		e.planRecord()
	}
	e.announce()
}

// keepUnevaluated keeps what is published of an export that policies could not be
// evaluated for, and a grace period that began.
func (e *exporting) keepUnevaluated() {
	if e.keepPublished(); e.d.Plan.Record != nil {
		e.keepShared()
	}
	e.grace.since, e.d.Retry = deniedSince(e.publishing), true // the end of what keeps policies from being evaluated, such as a deadline, is no event
}

// sharedPorts are the ports that the local export shares.
func (e *exporting) sharedPorts() model.PortSelection {
	ports, _, _ := exchange.Ports(e.Local.Export, e.Local.Service) // none with an error
	return ports
}

// keepShared takes from the record that is kept the ports that are shared no longer,
// and adds the slices, with no other port than the record: what policies did not
// evaluate yet is not published. A record that is left without a port is withdrawn.
func (e *exporting) keepShared() {
	record, shared := e.d.Plan.Record, e.sharedPorts()
	ports := model.Without(record.Ports, func(p mcsv1beta1.ServicePort) bool { return !shared.Contains(p.Name) })
	if len(ports) == 0 && !shared.All() {
		e.d.Plan.Record, e.d.Plan.Audience = nil, nil
		return
	}
	record.Ports = ports
	record.Targets = model.Without(record.Targets, func(t model.Target) bool {
		return !slices.ContainsFunc(ports, func(p mcsv1beta1.ServicePort) bool { return p.Port == t.Port && p.Protocol == t.Protocol })
	})
	if len(ports) > 0 {
		shared = model.PortsNamed(model.Map(ports, func(p mcsv1beta1.ServicePort) string { return p.Name })...)
	}
	e.planSlices(shared)
}

// namespacesInScope are the exchange namespaces of the scope and, if that is every
// member, all in which something is published: it includes their readers.
func (e *exporting) namespacesInScope() []string {
	out, _ := audience(e.Self, e.scope, e.Members)
	if e.scope.All() {
		all := sets.New(out...).Insert(model.Map(e.Records, (*exchangev1alpha1.ExportRecord).GetNamespace)...)
		out = sets.List(all.Insert(model.Map(e.Copies, (*discoveryv1.EndpointSlice).GetNamespace)...))
	}
	return out
}

// planSlices plans the copies of the slices of the Service, with the ports that are shared,
// and has the planned record name them. It returns how many more there are than a record may
// name.
func (e *exporting) planSlices(shared model.PortSelection) (more int) {
	var copies []*discoveryv1.EndpointSlice
	sources := slices.SortedFunc(slices.Values(e.Local.Slices), func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	for _, source := range sources {
		if slice, ok := exchange.CopySlice(e.Local.Key, source, shared); ok {
			copies = append(copies, exchange.Cut(e.Local.Key, slice)...)
		}
	}
	e.d.Plan.Slices = copies[:min(len(copies), exchange.MaxSliceNames)]
	e.d.Plan.Record.Slices = model.Map(e.d.Plan.Slices, plan.SourceOf)
	return len(copies) - len(e.d.Plan.Slices)
}

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

// IsEnded reports whether a record states that its export ended. The statement is deleted once
// no member reports anything about the export: the view needs Reports and CollectBefore.
func IsEnded(record *exchangev1alpha1.ExportRecord) bool {
	return record.Spec.Withdrawn && !record.Spec.Suspended
}

// StatementOrder sorts statements of withdrawal by when they were stated.
func StatementOrder(record *exchangev1alpha1.ExportRecord) string {
	return ptr.Deref(record.Spec.WithdrawnAt, metav1.Time{}).UTC().Format(time.RFC3339) + "/" + record.Namespace + "/" + record.Name
}

// collect chooses the statements of ended exports that no member needs any more, and when
// to examine the others. A statement that is deleted too early removes nothing: an
// importer that did not read it keeps what it imported, as missing.
func (e *exporting) collect() {
	for _, record := range e.d.Plan.CurrentRecords {
		if !e.d.Plan.IsOwn(record) || !IsEnded(record) || slices.Contains(e.d.Plan.Audience, record.Namespace) || record.Spec.ExportUID == e.d.Plan.Exists {
			continue
		}
		age := e.Now.Sub(ptr.Deref(record.Spec.WithdrawnAt, metav1.NewTime(e.Now)).Time) // one without a time gets one now
		if age >= collectAnyway || age >= collectAfter && e.isFollowed(record) || StatementOrder(record) < e.CollectBefore {
			e.d.Plan.Collect = append(e.d.Plan.Collect, record.Namespace)
			continue
		}
		e.d.Again = model.Sooner(e.d.Again, collectRetry)
	}
}

// isFollowed reports whether every reader of a statement was read completely, and none
// reports anything about the export. A removed member is no reader.
func (e *exporting) isFollowed(record *exchangev1alpha1.ExportRecord) bool {
	isShared := record.Namespace == model.ExchangeNamespace(e.Self)
	reads := func(id model.ClusterID) bool {
		return isShared || record.Namespace == model.ScopedExchangeNamespace(e.Self, id)
	}
	waits := func(m model.Member) bool {
		return reads(m.ID) && (!m.Synced || !m.Reported ||
			slices.ContainsFunc(e.Reports, func(r model.Report) bool { return r.Cluster == m.ID && r.ExportUID == record.Spec.ExportUID }))
	}
	isKnown := isShared || slices.ContainsFunc(e.Removed, reads) || slices.ContainsFunc(e.Members, func(m model.Member) bool { return reads(m.ID) })
	return isKnown && !slices.ContainsFunc(e.Members, waits)
}
