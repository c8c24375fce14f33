// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// ReportView is what this cluster knows when it reports to the other members
// how it imports their exports of one namespace and name.
type ReportView struct {
	Key  types.NamespacedName
	Self model.ClusterID
	// ImportDisabled: another implementation imports here.
	ImportDisabled bool
	// Namespace is that of the namespace to import into, in this cluster.
	Namespace model.Report
	// Peers are what the other clusters publish under that name, without slices: that of the
	// members, and of the clusters that were removed. What was reported to these goes.
	Peers []exchange.Published
	// Observation is what was found of the import; empty as long as it was not reconciled.
	Observation model.Observation
	// Records are the reports of that name that exist, in all exchange namespaces.
	Records []*exchangev1alpha1.ImportRecord
	// Unavailable says of the exchange namespaces of Peers why nothing can be written there.
	Unavailable map[string]string
	// Now is the time of a report that is new.
	Now time.Time
}

// maxMessage is what an ImportRecord may hold, in bytes.
const maxMessage = 1024

// Report decides what is reported to each member: desired is the report in each exchange
// namespace; those in current that are not desired are to be removed. A report stays as it is while
// the cluster is not read, its export is missing, its exchange namespace cannot be
// written, or the import was not reconciled yet. An export that ended is reported as long
// as the import lists it, so that its cluster does not delete the statement of the
// withdrawal.
func Report(v ReportView) (desired map[string]exchangev1alpha1.ImportRecordSpec, current []*exchangev1alpha1.ImportRecord) {
	desired = map[string]exchangev1alpha1.ImportRecordSpec{}
	for _, p := range v.Peers {
		at := model.ScopedExchangeNamespace(v.Self, p.ID)
		source, _ := v.Observation.Source(p.ID)
		switch {
		case p.Removed:
		case !p.Synced, v.Unavailable[at] != "", source.State == model.SourceMissing:
			continue
		case p.Refusal != nil:
			desired[at] = v.spec(p.Refusal.ExportUID, v.refused(p.ID, p.Refusal.Field))
		case p.Export != nil:
			result, known := v.result(p.ID)
			if !known {
				continue
			}
			desired[at] = v.spec(p.Export.UID, result)
		case source.State == model.SourceEnded:
			desired[at] = v.spec(source.UID, model.Report{Imported: true, Reason: model.ReasonImported})
		}
		current = append(current, model.Without(v.Records, func(r *exchangev1alpha1.ImportRecord) bool { return r.Namespace != at })...)
	}
	return desired, current
}

func (v ReportView) spec(export types.UID, r model.Report) exchangev1alpha1.ImportRecordSpec {
	r.ExportUID, r.Since = export, v.Now
	if decider := v.Observation.Decider; decider.UID == export || !decider.Scoped { // else not every member may know of it
		r.Decider = decider.Cluster
	}
	return exchange.ImportRecordSpec(v.Key, r)
}

// result is the report on what source exports; false if it is not known yet. First
// match wins:
//
//	importing is disabled                         no    ImportDisabled
//	namespace is the cluster's or Comity's        no    NamespaceReserved
//	namespace does not exist, or is terminating   no    NamespaceMissing
//	the namespaces have different identities      no    NamespaceMismatch
//	the identity there is not known               if it exists already: NamespaceUnknown
//	policies of this cluster deny it              no    PolicyDenied
//	they could not be evaluated                   if it exists already: NotEvaluated
//	the import was not reconciled yet             not known yet
//	an object of this cluster prevents it         no    the reason of that problem
//	some endpoints of source are left out,
//	or slices of it are refused                   yes   the reason of that problem
//	all of them are                               no    the reason of that problem
//	after a restart, a source was not read yet    not known yet
//	the properties are frozen, and it waits       yes   Frozen
//	it waits to become the deciding export, or
//	another one waits to replace it as such       yes   TakeoverHeld
//	otherwise                                     yes   Imported
func (v ReportView) result(source model.ClusterID) (model.Report, bool) {
	switch {
	case v.ImportDisabled:
		return notImported(model.ReasonImportDisabled, "another implementation imports in cluster %s", v.Self), true
	case v.Namespace.Reason != "":
		return v.Namespace, true
	}
	for _, p := range v.Observation.Problems { // this cluster keeps the export out, or may
		if p.Cluster == source && slices.Contains(rules, p.Reason) {
			return model.Report{Imported: v.contributes(source), Reason: p.Reason, Message: v.tell(p)}, true
		}
	}
	if v.Observation.Import == nil {
		return model.Report{}, false
	}
	if _, has := v.Observation.Import.Constituent(source); !has { // it was not reconciled with this export
		return model.Report{}, false
	}
	var leftOut []model.Problem
	for _, p := range v.Observation.Problems {
		if p.Cluster == source {
			leftOut = append(leftOut, p)
		} else if p.Cluster == "" && v.prevents(p.Reason, source) {
			return model.Report{Reason: p.Reason, Message: v.tell(p)}, true
		}
	}
	if len(leftOut) == 0 {
		if slices.ContainsFunc(v.Observation.Sources, func(s model.Source) bool { return s.Starting }) {
			return model.Report{}, false // whether it waits, and for what, is not known
		}
		if f := v.Observation.Freeze; f.IsAwaited() && f.By.Cluster != source {
			return model.Report{Imported: true, Reason: model.ReasonFrozen, Message: v.tell(model.Problem{Reason: model.ReasonFrozen})}, true
		}
		if held := model.ReportTakeovers(v.Observation.Takeovers, source, v.Self, v.Key); held != "" {
			return model.Report{Imported: true, Reason: model.ReasonTakeoverHeld, Message: model.Bound(held, maxMessage)}, true
		}
		return model.Report{Imported: true, Reason: model.ReasonImported}, true
	}
	kept := slices.ContainsFunc(leftOut, func(p model.Problem) bool { return p.Reason == model.ReasonSliceMissing })
	found, _ := v.Observation.Source(source)
	return model.Report{Imported: kept || found.HasEndpoints, Reason: leftOut[0].Reason, Message: model.Bound(strings.Join(slices.Compact(model.Map(leftOut, v.tell)), "; "), maxMessage)}, true
}

// contributes reports whether something of source is imported, or kept.
func (v ReportView) contributes(source model.ClusterID) bool {
	s, has := v.Observation.Source(source)
	return has && s.State.IsServed()
}

// refused is the result of an export whose record is not valid, or whose namespace
// is not accepted.
func (v ReportView) refused(exporter model.ClusterID, field string) model.Report {
	if field == "" {
		return notImported(model.ReasonNamespaceNotAccepted, "cluster %s accepts no exports of namespace %s from cluster %s; its administrator can list it in spec.acceptedNamespaces of the Peer",
			v.Self, v.Key.Namespace, exporter)
	}
	return notImported(model.ReasonInvalidRecord, "cluster %s cannot use the record: field %s is not valid; run the same version of Comity in both, and see the conditions of Peer %s there",
		v.Self, field, exporter)
}

func notImported(reason, format string, args ...any) model.Report {
	return model.Report{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// prevents reports whether a problem with this cluster's own objects keeps the export of source
// from being imported. A name that is taken need not, since a derived Service has a second one.
func (v ReportView) prevents(reason string, source model.ClusterID) bool {
	switch reason {
	case model.ReasonForeignImport, model.ReasonIPFamilyNotSupported, model.ReasonRefused:
		return true
	}
	return reason == model.ReasonNameTaken && !v.contributes(source)
}

// confidential is what a reader of a report may know of a problem whose message may name
// objects, clusters and policies that the reader must not learn of.
var confidential = map[string]string{
	model.ReasonNotEvaluated: "whether the export may be imported could not be evaluated, and nothing new of it is; the ExportPolicies and annotation " +
		model.AnnotationImportFrom + " of the Namespace there say why",
	model.ReasonForeignImport:        "Comity did not make it; rename the Service, or delete it",
	model.ReasonNameTaken:            "other objects in its namespace have the names of the derived Service",
	model.ReasonIPFamilyNotSupported: "the cluster has none of the IP families of the Service; export it with one that the cluster has",
	model.ReasonRefused:              "the API server there refuses what the import needs",
	model.ReasonFrozen:               "the export of another cluster decides the import, and is not read or missing",
}

// tell is what a report says of a problem. It names no third cluster.
func (v ReportView) tell(p model.Problem) string {
	if text, is := confidential[p.Reason]; is {
		return fmt.Sprintf("see conditions and events of ServiceImport %s in cluster %s: %s", v.Key, v.Self, text)
	}
	return p.Message
}

// Destinations are the clusters in the scope of a local export, sorted, and what each
// reports of importing it. This cluster is among them only if a takeover that concerns
// the export is on hold here. The result is false as long as it is not known where the
// export goes. Reports about an earlier export of the same name,
// one with another UID, are ignored.
func Destinations(self model.ClusterID, seen model.Observation, members []model.Member, reports []model.Report, uid types.UID) ([]model.Report, bool) {
	if seen.Publication != model.Published && (seen.Publication != model.PublicationFailed || seen.Scope.Empty()) {
		return nil, false
	}
	var out []model.Report
	for _, m := range members {
		if m.ID == self || !seen.Scope.Contains(m.ID) {
			continue
		}
		if report, has := model.Find(reports, func(r model.Report) bool { return r.Cluster == m.ID && r.ExportUID == uid }); has {
			out = append(out, reportedBy(m, report))
		} else {
			out = append(out, notReportedBy(m))
		}
	}
	_, unknown := audience(self, seen.Scope, members)
	for _, id := range unknown {
		out = append(out, model.Report{Cluster: id, Reason: model.ReasonUnknownCluster, Message: fmt.Sprintf(
			"no cluster %s is joined; join it, or remove it from the scope of the export", id)})
	}
	if seen.Import != nil {
		// Here no ImportRecord says it.
		if message := model.ReportTakeovers(seen.Takeovers, self, self, seen.Import.Key); message != "" {
			out = append(out, model.Report{Cluster: self, Imported: true, Reason: model.ReasonTakeoverHeld, Message: message})
		}
	}
	slices.SortFunc(out, func(a, b model.Report) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return out, true
}

// reportedBy is what m reported last. That its heartbeat is missing now changes
// nothing about what it imports, and is the reason only where there is no other.
func reportedBy(m model.Member, d model.Report) model.Report {
	if m.Liveness.State == model.Connected {
		return d
	}
	if d.Imported && d.Reason == model.ReasonImported {
		d.Reason, d.Message, d.Since = string(m.Liveness.State), noHeartbeat(m), m.Liveness.Since
		return d
	}
	d.Message = model.Bound(d.Message+"; this is its last report: "+noHeartbeat(m), maxMessage)
	return d
}

// notReportedBy is a cluster that has reported nothing about the export.
func notReportedBy(m model.Member) model.Report {
	d := model.Report{Cluster: m.ID, Reason: model.ReasonPending}
	switch {
	case m.Liveness.State != model.Connected:
		d.Reason, d.Message, d.Since = model.ReasonUnreachable, noHeartbeat(m), m.Liveness.Since
	case m.Reported:
		d.Message = fmt.Sprintf("cluster %s has not reported yet whether it imports the export", m.ID)
	default:
		d.Unsynced, d.Message = true, fmt.Sprintf("cluster %s has not been read yet", m.ID)
	}
	return d
}

// noHeartbeat says that the heartbeat of m is missing, and why if that is known. The text stays
// the same as long as it is missing.
func noHeartbeat(m model.Member) string {
	return strings.TrimSuffix(fmt.Sprintf("no heartbeat of cluster %s is seen: %s", m.ID, m.Liveness.Message), ": ")
}
