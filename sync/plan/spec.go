// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// assigned are the fields of a Service that the API server sets where they are not applied.
var assigned = []string{"clusterIP", "clusterIPs", "ipFamilies", "internalTrafficPolicy", "externalTrafficPolicy", "healthCheckNodePort"}

// compareSpec compares the specs of an existing object and of the desired one, which are
// structs. It reports whether the existing one has all desired values, and returns the
// fields, set to nil, that others set and that are not desired. Fields that the API server
// assigns where they are not applied are compared only where they are desired.
func compareSpec[S any](current, desired *S, assigned ...string) (hasAll bool, strip map[string]any) {
	hasAll, strip = true, map[string]any{}
	was, is := reflect.ValueOf(current).Elem(), reflect.ValueOf(desired).Elem()
	for n := range is.NumField() {
		name := jsonName(is.Type().Field(n))
		switch {
		case !is.Field(n).IsZero():
			hasAll = hasAll && equality.Semantic.DeepEqual(was.Field(n).Interface(), is.Field(n).Interface())
		case !was.Field(n).IsZero() && !slices.Contains(assigned, name):
			strip[name] = nil
		}
	}
	return hasAll, strip
}

// appliedNames are the names of the fields of a desired spec that the API server removes
// when they are no longer applied.
func appliedNames[S any](desired *S, assigned ...string) (names []string) {
	spec := reflect.ValueOf(desired).Elem()
	for n := range spec.NumField() {
		if name := jsonName(spec.Type().Field(n)); !spec.Field(n).IsZero() && !slices.Contains(assigned, name) {
			names = append(names, name)
		}
	}
	return names
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// serviceSpec is that of the derived Service.
func (p *importer) serviceSpec() corev1.ServiceSpec {
	policy := familyPolicy(p.families, p.Desired.IPFamilies)
	spec := corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, Selector: p.selector(), ClusterIP: p.clusterIP(), IPFamilies: p.families, IPFamilyPolicy: &policy,
		SessionAffinity:       cmp.Or(p.Desired.SessionAffinity, corev1.ServiceAffinityNone),
		SessionAffinityConfig: p.Desired.SessionAffinityConfig,
		InternalTrafficPolicy: p.Desired.InternalTrafficPolicy,
		TrafficDistribution:   p.Desired.TrafficDistribution,
	}
	for _, port := range p.ports {
		spec.Ports = append(spec.Ports, corev1.ServicePort{
			Name: proxyName(port, p.ports), Protocol: port.Protocol, AppProtocol: port.AppProtocol, Port: port.Port, TargetPort: p.target(port),
		})
	}
	return spec
}

// compareService is compareSpec of a derived Service. The API server merges its ports by
// number and protocol, and fills in node ports; a merge patch replaces all of them.
func compareService(current, desired *corev1.ServiceSpec) (hasAll bool, strip map[string]any) {
	merged := *current
	isMissing := func(want corev1.ServicePort) bool {
		return !slices.ContainsFunc(current.Ports, func(port corev1.ServicePort) bool {
			port.NodePort = 0
			return equality.Semantic.DeepEqual(port, want)
		})
	}
	isSurplus := func(port corev1.ServicePort) bool {
		return !slices.ContainsFunc(desired.Ports, func(want corev1.ServicePort) bool {
			return want.Port == port.Port && want.Protocol == port.Protocol && (port.AppProtocol == nil || want.AppProtocol != nil)
		})
	}
	if !slices.ContainsFunc(desired.Ports, isMissing) {
		merged.Ports = desired.Ports
	}
	hasAll, strip = compareSpec(&merged, desired, assigned...)
	if slices.ContainsFunc(current.Ports, isSurplus) {
		strip["ports"] = desired.Ports
	}
	if current.Type != desired.Type { // a removal, as that of source ranges, can be valid only with the new type
		strip["type"] = desired.Type
	}
	if _, strips := strip["sessionAffinityConfig"]; strips { // nor is this with another affinity
		strip["sessionAffinity"] = desired.SessionAffinity
	}
	return hasAll, strip
}

// servicePortNames are the names of ports for the digest.
func servicePortNames(ports []corev1.ServicePort) (names []string) {
	for _, port := range ports {
		names = append(names, fmt.Sprintf("port %d/%s", port.Port, port.Protocol))
		if port.AppProtocol != nil {
			names = append(names, fmt.Sprintf("appProtocol of %d/%s", port.Port, port.Protocol))
		}
	}
	return names
}

// importSpec is that of the ServiceImport. Its ports are required: without any it is an
// empty list.
func (p *importer) importSpec() mcsv1beta1.ServiceImportSpec {
	return mcsv1beta1.ServiceImportSpec{
		Type: p.importType(), Ports: append([]mcsv1beta1.ServicePort{}, p.ports...), IPs: p.importIPs(), IPFamilies: p.importFamilies(),
		SessionAffinity: p.Desired.SessionAffinity, SessionAffinityConfig: p.Desired.SessionAffinityConfig,
		InternalTrafficPolicy: p.Desired.InternalTrafficPolicy, TrafficDistribution: p.Desired.TrafficDistribution,
	}
}
