// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// reservedDomains are those, with their subdomains, of labels and annotations that are
// not copied to another cluster.
var reservedDomains = sets.New(
	// What Kubernetes, the MCS API and Comity read: kube-proxy, for one, ignores slices
	// with certain labels of service.kubernetes.io.
	"service.kubernetes.io", "endpointslice.kubernetes.io", "multicluster.kubernetes.io", "comity.dev",
	// By these, Argo CD, Flux, Helm, Sveltos, Fleet, kapp, kubectl, and what is based on
	// cli-utils find the objects that they applied, to delete those that are no longer
	// wanted. They would delete a copy, and a member could attach its slices to any application.
	"argoproj.io", "fluxcd.io", "fluxcd.controlplane.io", "helm.sh", "projectsveltos.io", "cattle.io", "k14s.io",
	"kubectl.kubernetes.io", "applyset.kubernetes.io", "config.kubernetes.io", "config.k8s.io", "configsync.gke.io", "configmanagement.gke.io",
)

// reservedKeys are single ones, for the same reasons.
var reservedKeys = sets.New(discoveryv1.LabelServiceName, "app.kubernetes.io/instance", "app.kubernetes.io/managed-by")

// Reserved reports whether a label or annotation of an EndpointSlice or of an export means
// something to software that reads or applies objects, and therefore must not be copied to
// another cluster.
func Reserved(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	for more := true; more; _, domain, more = strings.Cut(domain, ".") {
		if reservedDomains.Has(domain) {
			return true
		}
	}
	return reservedKeys.Has(key)
}

// Unreserved are the labels or annotations that may be copied to another cluster. Only the
// administrator of that cluster may configure how it treats an import.
func Unreserved(in map[string]string) map[string]string {
	out := maps.Clone(in)
	maps.DeleteFunc(out, func(key, _ string) bool { return Reserved(key) })
	return out
}

// ReservedOf says which labels and annotations that a ServiceExport wants to export are
// not; empty if all are. The text names object, fields and what to do.
func ReservedOf(export *mcsv1beta1.ServiceExport) string {
	var fields []string
	add := func(field string, in map[string]string) {
		keys := slices.DeleteFunc(slices.Sorted(maps.Keys(in)), func(key string) bool { return !Reserved(key) })
		if len(keys) > 0 {
			fields = append(fields, field+": "+quoted(keys))
		}
	}
	add("spec.exportedLabels", export.Spec.ExportedLabels)
	add("spec.exportedAnnotations", export.Spec.ExportedAnnotations)
	if len(fields) == 0 {
		return ""
	}
	return fmt.Sprintf("ServiceExport %s/%s, %s: not exported, because Kubernetes, Comity, or a tool such as Argo CD, Flux or Helm would act on it in other clusters; remove it",
		export.Namespace, export.Name, strings.Join(fields, "; "))
}
