// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// driftPatch is the patch that removes labels, and fields of the spec; nil if there is nothing
// to remove. All else in a slice are lists that an apply replaces as a whole.
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
