// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// What others added to an object of Comity's, and an apply would not remove.
// Server-side apply sets the fields that Comity applies and leaves alone those
// that it never applied. It replaces a changed selector, but an added port or
// external IP stays, and takes traffic where no export sent it. So an object is
// compared with the desired one, and a JSON merge patch removes such fields.
// Labels and annotations of users stay, except labels by which kube-proxy and
// DNS read an object.

// mergePatch is a JSON merge patch: null removes.
type mergePatch map[string]any

// sliceDrift compares the labels only: all else in a slice are lists that an
// apply replaces as a whole.
func sliceDrift(current, desired *discoveryv1.EndpointSlice) mergePatch {
	return driftPatch(current, desired, nil)
}

func importDrift(current, desired *mcsv1beta1.ServiceImport) mergePatch {
	return driftPatch(current, desired, strippedSpec(importFields, &current.Spec, &desired.Spec))
}

// serviceDrift also sets what has to change together with what is removed,
// because the API server accepts one only with the other. A Service of type
// ExternalName is applied first: its IP families can be compared only then.
func serviceDrift(current, desired *corev1.Service) mergePatch {
	if current.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	spec := strippedSpec(serviceFields, &current.Spec, &desired.Spec)
	if _, strips := spec["sessionAffinityConfig"]; strips {
		spec["sessionAffinity"] = desired.Spec.SessionAffinity
	}
	return driftPatch(current, desired, spec)
}

func driftPatch(current, desired metav1.Object, spec map[string]any) mergePatch {
	labels := map[string]any{}
	for key := range current.GetLabels() {
		if _, wanted := desired.GetLabels()[key]; !wanted && isRead(key) {
			labels[key] = nil
		}
	}
	p := mergePatch{}
	if len(spec) > 0 {
		p["spec"] = spec
	}
	if len(labels) > 0 {
		p["metadata"] = map[string]any{"labels": labels}
	}
	if len(p) == 0 {
		return nil
	}
	return p
}

// isRead reports whether kube-proxy, CoreDNS or the MCS API give a label a
// meaning on a Service or a slice.
func isRead(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return key == discoveryv1.LabelServiceName || domain == "multicluster.kubernetes.io" || domain == "service.kubernetes.io"
}
