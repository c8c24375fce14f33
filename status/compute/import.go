// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

// ImportInput is all that the status of a ServiceImport depends on. Nothing in
// it is changed.
type ImportInput struct {
	// Import is the object with the status that it has; never nil.
	Import *mcsv1beta1.ServiceImport
	// Derived is its derived Service if Comity made it; nil otherwise.
	Derived *corev1.Service
	// Slices is true if a derived EndpointSlice of the import exists, Endpoints if
	// one of them has an endpoint.
	Slices, Endpoints bool
	// Foreign is true of an import that another implementation made, to which
	// Comity adds what it knows.
	Foreign bool
	// Observation is what the sync loop found; nil before its first result.
	Observation *model.Observation

	clusters []mcsv1beta1.ClusterStatus // of the new status
}

func (in ImportInput) key() types.NamespacedName {
	return types.NamespacedName{Namespace: in.Import.Namespace, Name: in.Import.Name}
}

func (in ImportInput) hold(wanted metav1.Condition, partial bool) metav1.Condition {
	return hold(mcsv1beta1.ServiceImportKindName, in.Import.Status.Conditions, wanted, in.Import.Generation, partial)
}

// occasional are the conditions that a ServiceImport does not always have.
var occasional = []string{condition.TypeAvailable, condition.TypeSourceMissing, condition.TypeFrozen, condition.TypeTakeoverHeld}

// Import is what Comity owns of the status of a ServiceImport, as it should be:
// the source clusters in order; Ready, Available, SourceMissing while an export is
// missing, Frozen, and TakeoverHeld, in this order; and whether there are EndpointSlices. Of an
// import that is foreign, and that no member of ours contributes to, it is nothing.
func Import(in ImportInput, now metav1.Time) mcsv1beta1.ServiceImportStatus {
	old := in.Import.Status.Conditions
	in.clusters = sources(in)
	status := mcsv1beta1.ServiceImportStatus{Clusters: in.clusters}
	switch {
	case in.Foreign && len(in.clusters) == 0:
		return status
	case in.Foreign:
		status.Conditions = []metav1.Condition{condition.ImportReady(foreignReadiness(in))}
	default:
		status.EndpointSliceObjects = mcsv1beta1.EndpointSliceObjectsAbsent
		if in.Slices {
			status.EndpointSliceObjects = mcsv1beta1.EndpointSliceObjectsPresent
		}
		// Without the observation of a source cluster it is not known which problems there are.
		isStarting := func(c mcsv1beta1.ClusterStatus) bool {
			return slices.Contains(in.Observation.Starting, model.ClusterID(c.Cluster))
		}
		partial := slices.Equal(sorted(in.Import.Status.Clusters), sorted(in.clusters)) && (in.Observation == nil || slices.ContainsFunc(in.clusters, isStarting))
		status.Conditions = []metav1.Condition{in.hold(condition.ImportReady(importReadiness(in)), partial)}
	}
	if in.Observation == nil {
		status.Conditions = append(status.Conditions, present(old, occasional...)...)
	} else {
		status.Conditions = slices.Concat(status.Conditions, sourcesAvailable(in), missingSources(in), frozen(in), takeover(in))
	}
	status.Conditions = model.Stamped(status.Conditions, old, in.Import.Generation, now)
	return status
}

// sources are the clusters whose exports make up the import: those that
// contribute, and those that did before a restart and are unsynced since.
func sources(in ImportInput) []mcsv1beta1.ClusterStatus {
	ids, seen := sets.New[model.ClusterID](), in.Observation
	for _, entry := range in.Import.Status.Clusters {
		if id := model.ClusterID(entry.Cluster); seen == nil || slices.Contains(seen.Unsynced, id) {
			ids.Insert(id)
		}
	}
	if seen != nil {
		ids.Insert(model.Map(served(seen), func(s model.Source) model.ClusterID { return s.Cluster })...)
	}
	return model.Map(sets.List(ids), func(id model.ClusterID) mcsv1beta1.ClusterStatus {
		return mcsv1beta1.ClusterStatus{Cluster: string(id)}
	})
}

func importReadiness(in ImportInput) (reason, message string) {
	var problems []model.Problem
	if in.Observation != nil {
		problems = ranked(in.Observation.Problems)
	}
	if i := stopper(in, problems); i >= 0 {
		first := problems[i]
		return first.Reason, plain(first.Message) + troubles("; ", slices.Delete(problems, i, i+1))
	}
	if missing := missing(in); missing != "" {
		return model.ReasonPending, missing
	}
	ids := sorted(in.clusters)
	if len(ids) == 0 {
		return model.ReasonPending, "it is not known yet which clusters export this Service" + troubles("; ", problems)
	}
	// Traffic need not reach all of them: condition Conflict says of which a port is left out.
	return condition.ReasonImportReady, fmt.Sprintf("%s.%s.svc.clusterset.local resolves to %s; exported by %s%s", in.Import.Name, in.Import.Namespace,
		cmp.Or(strings.Join(in.Import.Spec.IPs, ", "), "its endpoints"), decision.Clusters(ids), troubles("; ", problems))
}

// stopper finds, among problems in order, the first that keeps the import from
// being used; -1 if none does. Endpoints that are left out of an
// import which otherwise works do not.
func stopper(in ImportInput, problems []model.Problem) int {
	incomplete := missing(in) != ""
	return slices.IndexFunc(problems, func(p model.Problem) bool {
		switch p.Reason {
		case model.ReasonIPFamilyNotSupported:
			return true
		case model.ReasonAddressOverlap, model.ReasonAddressNotAccepted, model.ReasonInvalidEndpoints, model.ReasonLimitExceeded:
			return incomplete || !in.Endpoints
		case model.ReasonRefused: // slices of a cluster, or another object
			return incomplete || p.Cluster != "" && !in.Endpoints
		case model.ReasonPolicyDenied, model.ReasonNotEvaluated, model.ReasonPolicyWarning,
			model.ReasonNamespaceUnknown, model.ReasonNamespaceNotAccepted, // of one cluster; the import is that of the others
			model.ReasonReservedKey:
			return false
		}
		return incomplete
	})
}

// foreignReadiness follows the spec that the other implementation wrote: Comity
// made no derived objects to check.
func foreignReadiness(in ImportInput) (reason, message string) {
	list := decision.Clusters(sorted(in.clusters))
	if in.lacksIP() {
		return model.ReasonPending, "the implementation that made this ServiceImport has not given it an IP yet; exported by " + list
	}
	return condition.ReasonImportReady, "made by another implementation than Comity; exported by " + list
}

func (in ImportInput) lacksIP() bool {
	return in.Import.Spec.Type != mcsv1beta1.Headless && len(in.Import.Spec.IPs) == 0
}

// missing names what the import still needs before it can be used; empty if nothing.
func missing(in ImportInput) string {
	derived := in.Import.Annotations[model.AnnotationDerivedName]
	switch {
	case derived == "":
		return "no derived Service is assigned yet; Comity is working on it"
	case in.Derived == nil:
		return fmt.Sprintf("derived Service %s/%s does not exist yet; Comity is working on it", in.Import.Namespace, derived)
	case in.lacksIP():
		return fmt.Sprintf("derived Service %s/%s has no cluster IP yet, so spec.ips is empty", in.Import.Namespace, derived)
	}
	return ""
}

// consequences are what a state of a cluster that contributes means for its endpoints.
var consequences = map[string]string{
	condition.ReasonDrained:   "endpoints there are the last resort until kubectl comity resume",
	condition.ReasonLost:      "endpoints there stay in use as long as they answer; bring the cluster back or remove it",
	condition.ReasonWithdrawn: "endpoints there do not answer either and are the last resort; bring the cluster back or remove it",
}

// asReport is the state of a source in the form of a report, as which it is put together with
// the others.
func asReport(s model.Source) model.Report {
	// No time is in it: that would be another one after each restart. lastTransitionTime has it.
	r := model.Report{Cluster: s.Cluster, Imported: s.Liveness.State == model.Connected && !s.Down, Reason: cmp.Or(string(s.Liveness.State), model.ReasonPending)}
	switch {
	case s.Down:
		r.Reason = condition.ReasonWithdrawn
	case r.Imported && s.Drained:
		r.Reason = condition.ReasonDrained
	case r.Imported:
		r.Reason = model.ReasonImported
	}
	causes := model.Without([]string{consequences[r.Reason], s.Liveness.Reason, s.Liveness.Message}, func(text string) bool { return text == "" })
	r.Message = strings.Join(causes, ": ")
	return r
}

// maxTiers bounds what Available says of tiers, in bytes.
const maxTiers = 400

// sourcesAvailable is Available of a ServiceImport: whether every cluster that
// contributes to it is connected, and which tier serves. One condition, or none if none contributes.
func sourcesAvailable(in ImportInput) []metav1.Condition {
	old := in.Import.Status.Conditions
	sources := served(in.Observation)
	if len(sources) == 0 {
		if len(in.Observation.Unsynced) > 0 {
			return present(old, condition.TypeAvailable)
		}
		return nil
	}
	reason, message := worstSource(sources)
	if tiers := in.Observation.Tiers; tiers != nil {
		if reason == condition.ReasonConnected && tiers.Serving > 0 {
			reason = condition.ReasonLaterTier
		}
		message = model.Bound(plain(tiers.String()), maxTiers) + "; " + message
	}
	// A source that is not read may still be as bad as the stored reason.
	stored := condition.ProblemRank(reasonOf(old, condition.TypeAvailable))
	isDoubtful := func(s model.Source) bool {
		return slices.Contains(in.Observation.Unsynced, s.Cluster) && condition.ProblemRank(asReport(s).Reason) > stored
	}
	return []metav1.Condition{in.hold(condition.SourcesAvailable(reason, message), slices.ContainsFunc(in.Observation.Sources, isDoubtful))}
}

// worstSource gives the worst state as reason, and names every cluster that is not
// Connected.
func worstSource(sources []model.Source) (reason, message string) {
	groups, message := summary(model.Map(sources, asReport),
		"%d of %d clusters that export it are connected", "the only cluster that exports it is connected", "all %d clusters that export it are connected")
	if len(groups) > 0 {
		return groups[0].reason, message
	}
	return condition.ReasonConnected, message
}

// served are the sources of which something is served, or kept.
func served(seen *model.Observation) []model.Source {
	return model.Without(seen.Sources, func(s model.Source) bool { return !s.State.IsServed() })
}

// missingSources is SourceMissing: what is kept although its cluster states nothing of it, or
// stated nothing when it was read last. It is one condition while something is missing, and
// none otherwise, rather than False: most imports never have it.
func missingSources(in ImportInput) []metav1.Condition {
	var parts []part
	for _, s := range in.Observation.Sources {
		if s.State == model.SourceMissing || s.State == model.SourceNotRead && !s.Since.IsZero() {
			parts = append(parts, part{fmt.Sprintf("the export of cluster %s is missing since %s although it was not withdrawn, and what was imported from it is kept; restore it "+
				"(kubectl comity join restores exchange namespaces), or confirm that it is gone: kubectl comity confirm missing %s",
				s.Cluster, moment(s.Since), s.Cluster), 1})
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return []metav1.Condition{condition.SourceMissing(model.ReasonMissing, fit("", parts))}
}

// frozen is Frozen: why no property of the import changes, and which command ends that. A
// cluster that is being connected to for the first time since start freezes nothing that
// is worth a condition.
func frozen(in ImportInput) []metav1.Condition {
	f := in.Observation.Freeze
	switch {
	case f == nil:
		return nil
	case f.By.Starting:
		return present(in.Import.Status.Conditions, condition.TypeFrozen)
	}
	return []metav1.Condition{condition.Frozen(string(f.By.State), freezeText(f, in.key()))}
}

// freezeText says why, and what ends it. An export that is not read though nothing keeps its
// cluster from being read is one that cannot be decided.
func freezeText(f *model.Freeze, key types.NamespacedName) string {
	by := f.By
	why := ""
	if by.Why != "" {
		why = ": " + model.Bound(plain(by.Why), maxQuoted)
	}
	cause, end := "is refused here"+why, fmt.Sprintf("the next export decides from %s on", moment(f.Until))
	takeover := fmt.Sprintf("or let another export decide: kubectl comity confirm takeover %s --from CLUSTER", key)
	switch undecided := by.Liveness.State == model.Connected && by.Liveness.Reason+by.Liveness.Message == ""; {
	case by.State == model.SourceNotRead && undecided:
		cause, end = "it is not known whether that may be imported"+why, takeover
	case by.State == model.SourceNotRead:
		cause = fmt.Sprintf("cluster %s is not read%s", by.Cluster, why)
		end = fmt.Sprintf("if it is gone for good: kubectl comity leave --id %s <context of this cluster>; %s", by.Cluster, takeover)
	case by.State == model.SourceMissing:
		cause = "that export is missing since " + moment(by.Since)
		end = fmt.Sprintf("if it is gone for good: kubectl comity confirm missing %s; %s", by.Cluster, takeover)
	case by.State == model.SourceEnded:
		cause = "was deleted"
	case by.State == model.SourceSuspended:
		cause = "was withdrawn" + why
	}
	return fmt.Sprintf("no property of the import changes, because the export of cluster %s decides it, and %s; %s", by.Cluster, cause, end)
}

// takeover is TakeoverHeld: which export waits to decide the import, and how to
// confirm that. While a source that the import lists is being connected to for the first time
// since start, what waits for it is not known: a restart changes no condition.
func takeover(in ImportInput) []metav1.Condition {
	switch {
	case slices.ContainsFunc(in.Observation.Sources, func(s model.Source) bool { return s.Starting }):
		return present(in.Import.Status.Conditions, condition.TypeTakeoverHeld)
	case len(in.Observation.Takeovers) == 0:
		return nil
	}
	return []metav1.Condition{condition.TakeoverHeld(model.ReasonTakeoverHeld, heldTakeovers(in.Observation.Takeovers, in.key()))}
}

// heldTakeovers says of the first takeover what it is and how to confirm it, then which
// others wait, and then what would change: that is text of a member, and may be cut.
func heldTakeovers(held []model.Takeover, key types.NamespacedName) string {
	t := held[0]
	text := fmt.Sprintf("the export of cluster %s (created %s) is older than the one of cluster %s (created %s), and does not decide until an administrator confirms it: %s",
		t.By.Cluster, moment(t.By.CreatedAt), t.Decider.Cluster, moment(t.Decider.CreatedAt), plain(t.Confirm(key)))
	if others := model.Map(held[1:], func(other model.Takeover) model.ClusterID { return other.By.Cluster }); len(others) > 0 {
		text += "; in the same way confirm another one that waits, of " + decision.Some(others, maxNamed)
	}
	return text + fmt.Sprintf("; it would change %s (%s)", strings.Join(t.Fields, ", "), plain(t.Changes))
}
