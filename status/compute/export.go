// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package compute turns what was observed into status.
//
// It takes an object with its current status, the related objects, and the time;
// it gives the conditions and lists that Comity owns, as they should be now. It is
// pure: the same input gives the same bytes. It follows KEP-1645, "ServiceExport
// status" and "ServiceImport status".
//
// A process that starts has not read every cluster yet, and what it does not know
// must not be shown as gone. So each condition is computed from what is known, and
// a rule in hold.go then says whether it may replace the stored one. The stored
// condition stays while a cluster that it may be about is unsynced. Which clusters
// those are comes from structured state, never from the words of a message:
//
//	condition           may be about
//	export: Ready       this cluster, until its policies are loaded
//	export: Conflict    each cluster in Observation.Unsynced
//	export: Admitted    this cluster until its policies are loaded, or any unsynced cluster if it warns
//	export: Available   the clusters in scope, by Destination.Unsynced
//	import: Ready       status.clusters
//	import: Available   the sources that were as bad as the stored reason
//	import: Frozen      the export that decides, while Source.Starting is true of it
//	import: TakeoverHeld  each source, while Starting is true of it
package compute

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

// ExportInput is all that the status of a ServiceExport depends on. Nothing in
// it is changed.
type ExportInput struct {
	// Export is the object with the status that it has; never nil.
	Export *mcsv1beta1.ServiceExport
	// Service is the Service of its name; nil if there is none.
	Service *corev1.Service
	// Observation is what the sync loop found; nil before its first result.
	Observation *model.Observation
	// Verdict is the answer of the policies on the export as it is stored.
	Verdict decision.Verdict
	// Destinations are what the clusters in scope, without this one, report about importing
	// it; DestinationsKnown is false as long as it is not known where the export goes.
	Destinations      []model.Report
	DestinationsKnown bool
}

// Export is the conditions that Comity owns on a ServiceExport, as they should
// be: Valid, Ready, Conflict, Admitted, Available, in this order. For Available
// see availability.
//
//	                    Valid      Ready            Conflict      Admitted
//	no Service          NoService  Pending          NoConflicts   by verdict
//	ExternalName        Invalid…   Failed           NoConflicts   by verdict
//	itself an import    Invalid…   Failed           NoConflicts   by verdict
//	policy withholds it Valid      Failed           NoConflicts   PolicyDenied
//	policy will, later  Valid      Exported         by conflicts  PolicyDenied
//	published           Valid      Exported         by conflicts  Admitted…
//	not observed yet    by Service as it is         as it is      by verdict
//
// An export that is not valid, or withheld, is no constituent of any import: it
// conflicts with none, and Conflict=False says so. A condition about which nothing
// is known yet is left out, or stays as it is stored.
func Export(in ExportInput, now metav1.Time) []metav1.Condition {
	old, seen := in.Export.Status.Conditions, in.Observation
	valid := condition.Valid(validity(in))
	conditions := []metav1.Condition{valid}
	if seen == nil {
		conditions = append(conditions, present(old, condition.TypeReady, condition.TypeConflict)...)
	} else {
		conditions = append(conditions,
			// Without an answer of the policies what is published stays.
			in.hold(condition.Ready(readiness(in, valid)), unanswered(in.Verdict) && seen.Publication == model.PublicationPending),
			in.hold(condition.Conflict(conflict(seen)), len(seen.Starting) > 0 && !takesNoPart(seen)))
	}
	// A warning may be about a cluster that is not read yet, and a refusal say until when the export is published.
	warned := reasonOf(old, condition.TypeAdmitted) == condition.ReasonAdmittedWithWarnings
	partial := unanswered(in.Verdict) || seen == nil && in.Verdict.Outcome == decision.Denied || warned && (seen == nil || len(seen.Starting) > 0)
	conditions = append(conditions, in.hold(condition.Admitted(admission(in)), partial))
	conditions = append(conditions, availability(in)...)
	return model.Stamped(conditions, old, in.Export.Generation, now)
}

func (in ExportInput) hold(wanted metav1.Condition, partial bool) metav1.Condition {
	return hold(mcsv1beta1.ServiceExportKindName, in.Export.Status.Conditions, wanted, in.Export.Generation, partial)
}

func (in ExportInput) key() types.NamespacedName {
	return types.NamespacedName{Namespace: in.Export.Namespace, Name: in.Export.Name}
}

func validity(in ExportInput) (reason, message string) {
	if reason, message := model.NotExportable(in.key(), in.Service); message != "" {
		return string(reason), message
	}
	return condition.ReasonValid, fmt.Sprintf("Service %s exists and can be exported", in.key())
}

func readiness(in ExportInput, valid metav1.Condition) (reason, message string) {
	switch seen := in.Observation; seen.Publication {
	case model.Published:
		return condition.ReasonExported, published(seen.Scope) + troubles("; in this cluster: ", append(waits(in), seen.Problems...))
	case model.PublicationWithheld, model.PublicationFailed:
		return condition.ReasonFailed, seen.Detail
	}
	switch {
	case in.Observation.Publication == model.PublicationNone && valid.Reason == condition.ReasonInvalidServiceType:
		return condition.ReasonFailed, fmt.Sprintf("Service %s cannot be exported; see condition Valid", in.key())
	case valid.Status != metav1.ConditionTrue:
		return model.ReasonPending, fmt.Sprintf("waiting for Service %s; see condition Valid", in.key())
	}
	return model.ReasonPending, cmp.Or(in.Observation.Detail, "not published yet; Comity is working on it")
}

// waits is the problem that the import of this cluster does not follow the export, because
// another one freezes it.
func waits(in ExportInput) []model.Problem {
	f := in.Observation.Freeze
	if !f.IsAwaited() || f.By.UID == in.Export.UID || f.By.Starting {
		return nil
	}
	return []model.Problem{model.Problemf(model.ReasonFrozen, "",
		"the export of cluster %s decides the import, and is not read or missing; condition Frozen of ServiceImport %s has the command that ends it", f.By.Cluster, in.key())}
}

func published(scope model.Scope) string {
	if scope.All() {
		return "published for every cluster of the clusterset"
	}
	return "published for " + decision.Clusters(scope.Clusters())
}

// takesNoPart reports whether no import consists of the export.
func takesNoPart(seen *model.Observation) bool {
	return seen.Publication == model.PublicationNone || seen.Publication == model.PublicationWithheld
}

func conflict(seen *model.Observation) (reason, message string) {
	const none = string(mcsv1beta1.ServiceExportReasonNoConflicts)
	switch {
	case takesNoPart(seen):
		return none, "this export is not part of any import, because it is not published"
	case len(seen.Conflicts) == 0:
		return none, "all clusters that export this Service agree"
	}
	reasons := model.Map(seen.Conflicts, func(c model.Conflict) string { return string(c.Reason) })
	messages := model.Map(seen.Conflicts, func(c model.Conflict) string { return c.Message })
	return strings.Join(reasons, ","), strings.Join(messages, " ")
}

func admission(in ExportInput) (reason, message string) {
	verdict, excluded := in.Verdict, decision.Clusters(in.Verdict.Excluded)
	denied, narrowed := "policy forbids this export: ", "this export is not published to "+excluded+", because policy forbids that: "
	if in.Observation != nil && !in.Observation.WithdrawnAt.IsZero() {
		until := moment(in.Observation.WithdrawnAt) + " unless it is corrected by then: "
		denied = "policy forbids this export, which will be withdrawn at " + until
		narrowed = "policy forbids this export to " + excluded + "; clusters that still read it lose it at " + until
	}
	switch {
	case verdict.Outcome == decision.Denied:
		return model.ReasonPolicyDenied, complaints(denied, verdict.Violations)
	case verdict.Outcome != decision.Allowed:
		return model.ReasonNotEvaluated,
			"the policies could not be evaluated, so nothing new is published: " + cmp.Or(verdict.Problem, "no policy engine answered")
	case len(verdict.Excluded) > 0:
		return condition.ReasonClustersExcluded, complaints(narrowed, slices.Concat(verdict.Violations, verdict.Warnings))
	case len(verdict.Warnings) > 0:
		return condition.ReasonAdmittedWithWarnings, complaints("", verdict.Warnings)
	}
	return condition.ReasonAdmitted, "every policy lets this export be published"
}

// complaints lists violations as far as they fit, and counts the rest.
func complaints(intro string, violations []decision.Violation) string {
	parts := make([]part, len(violations))
	for i, violation := range violations {
		parts[i] = part{intro + violation.String(), 1}
		intro = ""
	}
	return fit(intro, parts)
}

// maxReason bounds a reason that a cluster of another version reports, maxQuoted
// the message of one cluster in a condition about many.
const (
	maxReason = 64 // bytes
	maxQuoted = 240
)

// availability is Available of a ServiceExport: which clusters in scope import it.
// One condition, or none if nothing is known.
//
//	not published               False    NotPublished
//	about to be                 Unknown  Pending
//	no other cluster in scope   False    NoDestinations
//	some cluster has a problem  False    the first problem in the order of condition.ProblemRank
//	some have not reported      Unknown  Pending
//	all import it               True     Imported
func availability(in ExportInput) []metav1.Condition {
	old := in.Export.Status.Conditions
	if in.Observation == nil {
		return present(old, condition.TypeAvailable)
	}
	var reason, message string
	switch destinations, publication := in.Destinations, in.Observation.Publication; {
	case takesNoPart(in.Observation),
		// An earlier version may still be published and imported.
		publication == model.PublicationFailed && !slices.ContainsFunc(destinations, func(d model.Report) bool { return d.Imported }):
		reason, message = condition.ReasonNotPublished, "no cluster can import what is not published; see condition Ready"
	case publication == model.PublicationPending:
		reason, message = model.ReasonPending, "not published yet; see condition Ready"
	case !in.DestinationsKnown:
		return present(old, condition.TypeAvailable)
	case len(destinations) == 0:
		reason, message = condition.ReasonNoDestinations, fmt.Sprintf(
			"no other cluster is in the scope of this export; join one, or widen %s on it or on its Namespace", model.AnnotationExportTo)
	default:
		reason, message = reported(destinations, deciders(in.Observation, destinations))
	}
	partial := in.Observation.Publication == model.PublicationPending || slices.ContainsFunc(in.Destinations, func(d model.Report) bool { return d.Unsynced })
	return []metav1.Condition{in.hold(condition.Available(reason, message), partial)}
}

// reported puts the reports of all destinations together.
func reported(destinations []model.Report, deciders string) (reason, message string) {
	var more []part
	if reason = model.ReasonImported; deciders != "" {
		reason, more = condition.ReasonDecidersDiffer, []part{{deciders, 0}}
	}
	groups, message := summary(destinations, "imported by %d of %d clusters", "imported by the one cluster in scope", "imported by all %d clusters in scope", more...)
	if len(groups) > 0 && !groups[0].imported {
		reason = groups[0].reason
	}
	return reason, message
}

// summary says for how many of the clusters all is well, in the formats of counted, and what is
// not for the others, the worst first.
func summary(reports []model.Report, some, one, every string, more ...part) ([]group, string) {
	well := model.Map(model.Without(reports, func(d model.Report) bool { return !d.Imported }), reporter)
	slices.Sort(well)
	groups := grouped(reports)
	return groups, fit(counted(well, len(reports), some, one, every), append(model.Map(groups, group.part), more...))
}

func reporter(d model.Report) model.ClusterID { return d.Cluster }

// deciders says which export decides the import where, if that is not the same one
// everywhere, as far as this cluster may know: the lists of the clusters formed, or were
// confirmed, in another order. Empty if it is the same.
func deciders(seen *model.Observation, destinations []model.Report) string {
	where := map[model.ClusterID][]string{}
	if d := seen.Decider; d.Cluster != "" && !d.Scoped {
		where[d.Cluster] = []string{"this cluster"}
	}
	for _, d := range destinations {
		decider, exports := seen.Source(d.Decider)
		isOutdated := seen.Import != nil && (!exports || decider.State.IsWithdrawn()) // a new report follows
		if d.Imported && d.Decider != "" && !isOutdated {
			where[d.Decider] = append(where[d.Decider], string(d.Cluster))
		}
	}
	if len(where) < 2 {
		return ""
	}
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(where)) {
		slices.Sort(where[id])
		parts = append(parts, fmt.Sprintf("cluster %s in %s", id, decision.Some(where[id], maxNamed)))
	}
	return "the import is not decided by the same export everywhere, but by that of " + decision.Some(parts, maxListed) +
		"; to change that, run kubectl comity confirm takeover there"
}

// group is the destinations that give one reason, sorted by cluster.
type group struct {
	reason   string
	imported bool
	members  []model.Report
}

// grouped lists, in this order: problems by their rank, pending clusters, and
// clusters that import with a problem. Clusters that import without one are left out.
func grouped(destinations []model.Report) (groups []group) {
	wanting := model.Without(destinations, func(d model.Report) bool {
		return d.Imported && (d.Reason == "" || d.Reason == model.ReasonImported)
	})
	for i := range wanting {
		wanting[i].Reason = model.Bound(plain(wanting[i].Reason), maxReason)
	}
	slices.SortStableFunc(wanting, func(a, b model.Report) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Cluster, b.Cluster))
	})
	for _, d := range wanting {
		last := len(groups) - 1
		if last < 0 || groups[last].reason != d.Reason || groups[last].imported != d.Imported {
			groups, last = append(groups, group{reason: d.Reason, imported: d.Imported}), last+1
		}
		groups[last].members = append(groups[last].members, d)
	}
	return groups
}

// rank orders reports: problems, then pending clusters, then those that import.
func rank(d model.Report) int {
	const pending, imported = 1000, 2000
	switch {
	case d.Imported:
		return imported + condition.ProblemRank(d.Reason)
	case d.Reason == model.ReasonPending:
		return pending
	}
	return condition.ProblemRank(d.Reason)
}

// part is "NamespaceMissing in c since 2026-11-21T10:02:11Z: namespace ...".
func (g group) part() part {
	clusters := model.Map(g.members, reporter)
	list := decision.Some(clusters, maxNamed)
	if g.reason == model.ReasonPending && !g.imported {
		return part{"not reported yet by " + list, len(clusters)}
	}
	quoted := plain(g.members[0].Message)
	if quoted != "" && slices.ContainsFunc(g.members, func(d model.Report) bool { return d.Message != g.members[0].Message }) {
		quoted = "in " + string(clusters[0]) + ": " + quoted
	}
	if quoted != "" {
		quoted = ": " + quoted
	}
	return part{cmp.Or(g.reason, "unknown reason") + " in " + list + g.since() + model.Bound(quoted, maxQuoted), len(clusters)}
}

// since is when the first problem of the group began, as the clusters report it.
// States that this cluster observes itself, such as Lost, have no time here: it would
// be another one after each restart. lastTransitionTime has it.
func (g group) since() string {
	switch g.reason {
	case model.ReasonUnreachable, condition.ReasonLost:
		return ""
	}
	var first time.Time
	for _, d := range g.members {
		if first.IsZero() || !d.Since.IsZero() && d.Since.Before(first) {
			first = d.Since
		}
	}
	if first.IsZero() {
		return ""
	}
	return " since " + moment(first)
}
