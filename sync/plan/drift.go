// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
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

// Slice compares the labels; all else in a slice is one list each, which an
// apply replaces as a whole.
func sliceDrift(current, desired *discoveryv1.EndpointSlice) mergePatch {
	return driftPatch(current, desired, nil)
}

// Import compares a ServiceImport.
func importDrift(current, desired *mcsv1beta1.ServiceImport) mergePatch {
	c, d := current.Spec, desired.Spec
	return driftPatch(current, desired, unwanted(map[string]bool{
		"ips":                   len(c.IPs) > 0 && len(d.IPs) == 0,
		"ipFamilies":            len(c.IPFamilies) > 0 && len(d.IPFamilies) == 0,
		"sessionAffinity":       c.SessionAffinity != "" && d.SessionAffinity == "",
		"sessionAffinityConfig": c.SessionAffinityConfig != nil && d.SessionAffinityConfig == nil,
		"internalTrafficPolicy": c.InternalTrafficPolicy != nil && d.InternalTrafficPolicy == nil,
		"trafficDistribution":   c.TrafficDistribution != nil && d.TrafficDistribution == nil,
	}))
}

// Service compares a derived Service. What has to change together with what
// goes, because the API server takes the one only with the other, is in the
// patch as well. A Service of type ExternalName is first applied: only then are
// its families its own to say.
func serviceDrift(current, desired *corev1.Service) mergePatch {
	c, d := current.Spec, desired.Spec
	if c.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	spec := unwanted(map[string]bool{
		"externalIPs":                   len(c.ExternalIPs) > 0,
		"externalName":                  c.ExternalName != "",
		"loadBalancerIP":                c.LoadBalancerIP != "",
		"loadBalancerSourceRanges":      len(c.LoadBalancerSourceRanges) > 0,
		"loadBalancerClass":             c.LoadBalancerClass != nil,
		"allocateLoadBalancerNodePorts": c.AllocateLoadBalancerNodePorts != nil,
		"publishNotReadyAddresses":      c.PublishNotReadyAddresses,
		"sessionAffinityConfig":         c.SessionAffinityConfig != nil && d.SessionAffinityConfig == nil,
		"trafficDistribution":           c.TrafficDistribution != nil && d.TrafficDistribution == nil,
	})
	if c.Type != d.Type {
		spec["type"] = d.Type
	}
	if _, goes := spec["sessionAffinityConfig"]; goes {
		spec["sessionAffinity"] = d.SessionAffinity
	}
	if slices.ContainsFunc(c.Ports, func(p corev1.ServicePort) bool { return !asApplied(p, d.Ports) }) {
		spec["ports"] = d.Ports // a merge patch replaces a list as a whole
	}
	return driftPatch(current, desired, spec)
}

// asApplied reports whether an apply of wanted leaves port as it should be.
func asApplied(port corev1.ServicePort, wanted []corev1.ServicePort) bool {
	return slices.ContainsFunc(wanted, func(w corev1.ServicePort) bool {
		return w.Port == port.Port && w.Protocol == port.Protocol && (port.AppProtocol == nil || w.AppProtocol != nil)
	})
}

// unwanted is a patch that removes the fields of which is holds.
func unwanted(is map[string]bool) map[string]any {
	spec := map[string]any{}
	for field, goes := range is {
		if goes {
			spec[field] = nil
		}
	}
	return spec
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
