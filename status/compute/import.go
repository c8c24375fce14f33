// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

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
	// Slices tells whether any derived EndpointSlice of the import exists.
	Slices bool
	// Observation is what the sync loop found; nil if it did not get there yet.
	Observation *model.Observation
}

// Import is what Comity owns of the status of a ServiceImport, as it should be:
// the source clusters in order, Ready, and whether there are EndpointSlices.
func Import(in ImportInput, now metav1.Time) mcsv1beta1.ServiceImportStatus {
	status := mcsv1beta1.ServiceImportStatus{
		EndpointSliceObjects: mcsv1beta1.EndpointSliceObjectsAbsent,
		Clusters:             sources(in.Import.Status.Clusters, in.Observation),
	}
	if in.Slices {
		status.EndpointSliceObjects = mcsv1beta1.EndpointSliceObjectsPresent
	}
	ready := hold(in.Import.Status.Conditions, importReadiness(in, status.Clusters), importIsSettled(in, status.Clusters))
	stamp(&ready, in.Import.Status.Conditions, in.Import.Generation, now)
	status.Conditions = []metav1.Condition{ready}
	return status
}

// sources are the clusters whose exports make up the import: those that
// contribute, and those that did and were not read since.
func sources(old []mcsv1beta1.ClusterStatus, seen *model.Observation) []mcsv1beta1.ClusterStatus {
	var ids []string
	for _, entry := range old {
		if seen == nil || slices.Contains(seen.Unread, model.ClusterID(entry.Cluster)) {
			ids = append(ids, entry.Cluster)
		}
	}
	if seen != nil && seen.Import != nil {
		for _, constituent := range seen.Import.Constituents {
			ids = append(ids, string(constituent.Cluster))
		}
	}
	slices.Sort(ids)
	var entries []mcsv1beta1.ClusterStatus
	for _, id := range slices.Compact(ids) {
		entries = append(entries, mcsv1beta1.ClusterStatus{Cluster: id})
	}
	return entries
}

func importReadiness(in ImportInput, clusters []mcsv1beta1.ClusterStatus) metav1.Condition {
	var problems []model.Problem
	if in.Observation != nil {
		problems = in.Observation.Problems
	}
	if missing := missing(in); missing != "" {
		if len(problems) > 0 {
			return condition.ImportReady(condition.ImportReason(problems[0].Reason),
				problems[0].Message+troubles("; ", problems[1:]))
		}
		return condition.ImportReady(condition.ReasonImportPending, missing)
	}
	ids := sorted(clusters)
	name := fmt.Sprintf("%s.%s.svc.clusterset.local", in.Import.Name, in.Import.Namespace)
	message := fmt.Sprintf("%s resolves to the endpoints of %s", name, clusterList(ids))
	if in.Import.Spec.Type != mcsv1beta1.Headless {
		message = fmt.Sprintf("%s resolves to %s and leads to %s", name, strings.Join(in.Import.Spec.IPs, ", "), clusterList(ids))
	}
	if len(ids) == 0 {
		message = fmt.Sprintf("%s resolves, but which clusters export it is not known yet", name)
	}
	return condition.ImportReady(condition.ReasonImportReady, message+troubles("; ", problems))
}

// missing says what keeps the import from being used; empty if nothing does.
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
		SameConditions(old.Conditions, wanted.Conditions)
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
