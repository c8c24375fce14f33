// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
}

// occasional are the conditions that a ServiceImport does not always have.
var occasional = []string{condition.TypeAvailable, condition.TypeSourceMissing, condition.TypeFrozen, condition.TypeTakeoverHeld}

// Import is what Comity owns of the status of a ServiceImport, as it should be:
// the source clusters in order; Ready, Available, SourceMissing while an export is
// missing, Frozen, and TakeoverHeld, in this order; and whether there are EndpointSlices. Of an
// import that is foreign, and that no member of ours contributes to, it is nothing.
func Import(in ImportInput, now metav1.Time) mcsv1beta1.ServiceImportStatus {
	old := in.Import.Status.Conditions
	status := mcsv1beta1.ServiceImportStatus{Clusters: sources(in)}
	switch {
	case in.Foreign && len(status.Clusters) == 0:
		return status
	case in.Foreign:
		status.Conditions = []metav1.Condition{foreignReadiness(in.Import, status.Clusters)}
	default:
		status.EndpointSliceObjects = mcsv1beta1.EndpointSliceObjectsAbsent
		if in.Slices {
			status.EndpointSliceObjects = mcsv1beta1.EndpointSliceObjectsPresent
		}
		status.Conditions = []metav1.Condition{hold(old, importReadiness(in, status.Clusters), func(was, wanted metav1.Condition) bool {
			return in.readinessIsSettled(status.Clusters, was, wanted)
		})}
	}
	if in.Observation == nil {
		status.Conditions = append(status.Conditions, present(old, occasional...)...)
	} else {
		status.Conditions = slices.Concat(status.Conditions, sourcesAvailable(in), missingSources(in), frozen(in), takeover(in))
	}
	for i := range status.Conditions {
		stamp(&status.Conditions[i], old, in.Import.Generation, now)
	}
	return status
}

// sources are the clusters whose exports make up the import: those that
// contribute, and those that did before a restart and are unsynced since.
func sources(in ImportInput) []mcsv1beta1.ClusterStatus {
	ids := sets.New[string]()
	seen := in.Observation
	for _, entry := range in.Import.Status.Clusters {
		if seen == nil || slices.Contains(seen.Unsynced, model.ClusterID(entry.Cluster)) {
			ids.Insert(entry.Cluster)
		}
	}
	if seen != nil {
		for _, source := range served(seen) {
			ids.Insert(string(source.Cluster))
		}
	}
	if seen != nil && seen.Import != nil {
		for _, constituent := range seen.Import.Constituents {
			ids.Insert(string(constituent.Cluster))
		}
	}
	var entries []mcsv1beta1.ClusterStatus
	for _, id := range sets.List(ids) {
		entries = append(entries, mcsv1beta1.ClusterStatus{Cluster: id})
	}
	return entries
}

func importReadiness(in ImportInput, clusters []mcsv1beta1.ClusterStatus) metav1.Condition {
	var problems []model.Problem
	if in.Observation != nil {
		problems = ranked(in.Observation.Problems)
	}
	if i := stopper(in, problems); i >= 0 {
		return condition.ImportReady(problems[i].Reason, plain(problems[i].Message)+troubles("; ", slices.Delete(slices.Clone(problems), i, i+1)))
	}
	if missing := missing(in); missing != "" {
		return condition.ImportReady(model.ReasonPending, missing)
	}
	ids := sorted(clusters)
	if len(ids) == 0 {
		return condition.ImportReady(model.ReasonPending, "it is not known yet which clusters export this Service"+troubles("; ", problems))
	}
	name := fmt.Sprintf("%s.%s.svc.clusterset.local", in.Import.Name, in.Import.Namespace)
	message := fmt.Sprintf("%s resolves to the endpoints of %s", name, decision.Clusters(ids))
	if in.Import.Spec.Type != mcsv1beta1.Headless {
		message = fmt.Sprintf("%s resolves to %s and leads to %s", name, strings.Join(in.Import.Spec.IPs, ", "), decision.Clusters(ids))
	}
	return condition.ImportReady(condition.ReasonImportReady, message+troubles("; ", problems))
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
func foreignReadiness(imported *mcsv1beta1.ServiceImport, clusters []mcsv1beta1.ClusterStatus) metav1.Condition {
	list := decision.Clusters(sorted(clusters))
	if imported.Spec.Type != mcsv1beta1.Headless && len(imported.Spec.IPs) == 0 {
		return condition.ImportReady(model.ReasonPending,
			"the implementation that made this ServiceImport has not given it an IP yet; exported by "+list)
	}
	return condition.ImportReady(condition.ReasonImportReady, "made by another implementation than Comity; exported by "+list)
}

// missing names what the import still needs before it can be used; empty if nothing.
func missing(in ImportInput) string {
	derived := in.Import.Annotations[model.AnnotationDerivedName]
	switch {
	case derived == "":
		return "no derived Service is assigned yet; Comity is working on it"
	case in.Derived == nil:
		return fmt.Sprintf("derived Service %s/%s does not exist yet; Comity is working on it", in.Import.Namespace, derived)
	case in.Import.Spec.Type != mcsv1beta1.Headless && len(in.Import.Spec.IPs) == 0:
		return fmt.Sprintf("derived Service %s/%s has no cluster IP yet, so spec.ips is empty", in.Import.Namespace, derived)
	}
	return ""
}

// SameImport reports whether the status is as it should be, conditions of
// others aside.
func SameImport(old, wanted mcsv1beta1.ServiceImportStatus) bool {
	return old.EndpointSliceObjects == wanted.EndpointSliceObjects &&
		slices.Equal(sorted(old.Clusters), sorted(wanted.Clusters)) &&
		SameConditions(old.Conditions, wanted.Conditions) && !slices.ContainsFunc(occasional, func(typ string) bool {
		return meta.FindStatusCondition(old.Conditions, typ) != nil && meta.FindStatusCondition(wanted.Conditions, typ) == nil
	})
}

// Covers reports whether all of wanted is in old, among what others put there.
func Covers(old, wanted mcsv1beta1.ServiceImportStatus) bool {
	return sets.New(old.Clusters...).HasAll(wanted.Clusters...) && SameConditions(old.Conditions, wanted.Conditions)
}

// sorted lists the clusters in order: the list is a map to the API server,
// which need not keep the order in which it was applied.
func sorted(entries []mcsv1beta1.ClusterStatus) []string {
	ids := make([]string, len(entries))
	for i, entry := range entries {
		ids[i] = entry.Cluster
	}
	slices.Sort(ids)
	return ids
}
