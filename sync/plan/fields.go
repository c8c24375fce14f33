// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// field is what this package knows of one field of a spec. There is one table
// of fields for the derived Service and one for the ServiceImport. The desired
// spec, the digest of what is applied, the comparison with the existing object
// and the patch that removes what others added are all computed from them.
type field[S any] struct {
	name string // in JSON
	// set copies the value from the resolved import.
	set func(p *importer, desired *S)
	// names are the names that a desired value adds to the digest.
	names func(desired *S) []string
	// asDesired compares an existing object with the desired one.
	asDesired func(current, desired *S) bool
	// strip returns what a JSON merge patch sets the field to before an apply,
	// nil to remove it; false if it leaves the field alone.
	strip func(current, desired *S) (any, bool)
}

// behavior is a set of the properties below. A field with none of them is
// compared only where it is desired, and is the API server's otherwise.
type behavior int

const (
	// exact: compared also where it is not desired.
	exact behavior = 1 << iota
	// signed: its presence depends on the exports, and the API server removes it
	// when it is no longer applied. So its name is part of the digest.
	signed
	// exclusive: a value that others set is removed where none is desired.
	exclusive
	// reset: a value that others set is replaced before the apply, not by it.
	reset
)

// specField is the field at a place of the spec. A nil value means that Comity
// never sets it.
func specField[S, T any](name string, b behavior, at func(*S) *T, value func(*importer) T) field[S] {
	is := func(wanted behavior) bool { return b&wanted != 0 }
	return field[S]{
		name: name,
		set: func(p *importer, desired *S) {
			if value != nil {
				*at(desired) = value(p)
			}
		},
		names: func(desired *S) []string {
			if is(signed) && isSet(*at(desired)) {
				return []string{name}
			}
			return nil
		},
		asDesired: func(current, desired *S) bool {
			return !is(exact) && !isSet(*at(desired)) || equality.Semantic.DeepEqual(*at(current), *at(desired))
		},
		strip: func(current, desired *S) (any, bool) {
			if is(reset) {
				return *at(desired), !equality.Semantic.DeepEqual(*at(current), *at(desired))
			}
			return nil, is(exclusive) && isSet(*at(current)) && !isSet(*at(desired))
		},
	}
}

// isSet reports whether a value is part of an apply: an empty one is omitted.
func isSet(value any) bool {
	v := reflect.ValueOf(value)
	if kind := v.Kind(); kind == reflect.Slice || kind == reflect.Map {
		return v.Len() > 0
	}
	return !v.IsZero()
}

func desiredSpec[S any](fields []field[S], p *importer) (desired S) {
	for _, f := range fields {
		f.set(p, &desired)
	}
	return desired
}

func appliedNames[S any](fields []field[S], desired *S) (names []string) {
	for _, f := range fields {
		names = append(names, f.names(desired)...)
	}
	return names
}

func specIsAsDesired[S any](fields []field[S], current, desired *S) bool {
	return !slices.ContainsFunc(fields, func(f field[S]) bool { return !f.asDesired(current, desired) })
}

// strippedSpec is the spec of a JSON merge patch.
func strippedSpec[S any](fields []field[S], current, desired *S) map[string]any {
	spec := map[string]any{}
	for _, f := range fields {
		if value, strips := f.strip(current, desired); strips {
			spec[f.name] = value
		}
	}
	return spec
}

// serviceFields are the fields of a derived Service.
var serviceFields = func() []field[corev1.ServiceSpec] {
	type spec = corev1.ServiceSpec
	return []field[spec]{
		// A removal, as that of source ranges, can be valid only with the new type.
		specField("type", exact|reset, func(s *spec) *corev1.ServiceType { return &s.Type },
			func(*importer) corev1.ServiceType { return corev1.ServiceTypeClusterIP }),
		servicePorts,
		specField("selector", exact|signed, func(s *spec) *map[string]string { return &s.Selector }, (*importer).selector),
		specField("clusterIP", 0, func(s *spec) *string { return &s.ClusterIP }, (*importer).clusterIP),
		specField("clusterIPs", 0, func(s *spec) *[]string { return &s.ClusterIPs }, nil),
		// Where families are no longer applied, the API server keeps them.
		specField("ipFamilies", 0, func(s *spec) *[]corev1.IPFamily { return &s.IPFamilies },
			func(p *importer) []corev1.IPFamily { return p.families }),
		specField("ipFamilyPolicy", exact, func(s *spec) **corev1.IPFamilyPolicy { return &s.IPFamilyPolicy },
			func(p *importer) *corev1.IPFamilyPolicy {
				policy := familyPolicy(p.families, p.Desired.IPFamilies)
				return &policy
			}),
		specField("sessionAffinity", exact, func(s *spec) *corev1.ServiceAffinity { return &s.SessionAffinity },
			func(p *importer) corev1.ServiceAffinity {
				return cmp.Or(p.Desired.SessionAffinity, corev1.ServiceAffinityNone)
			}),
		specField("sessionAffinityConfig", signed|exclusive, func(s *spec) **corev1.SessionAffinityConfig { return &s.SessionAffinityConfig },
			func(p *importer) *corev1.SessionAffinityConfig { return p.Desired.SessionAffinityConfig }),
		// Not exclusive: the API server sets a default where there is none.
		specField("internalTrafficPolicy", signed, func(s *spec) **corev1.ServiceInternalTrafficPolicy { return &s.InternalTrafficPolicy },
			func(p *importer) *corev1.ServiceInternalTrafficPolicy { return p.Desired.InternalTrafficPolicy }),
		specField("trafficDistribution", signed|exclusive, func(s *spec) **string { return &s.TrafficDistribution },
			func(p *importer) *string { return p.Desired.TrafficDistribution }),
		specField("externalIPs", exclusive, func(s *spec) *[]string { return &s.ExternalIPs }, nil),
		specField("externalName", exclusive, func(s *spec) *string { return &s.ExternalName }, nil),
		specField("externalTrafficPolicy", 0, func(s *spec) *corev1.ServiceExternalTrafficPolicy { return &s.ExternalTrafficPolicy }, nil),
		specField("healthCheckNodePort", 0, func(s *spec) *int32 { return &s.HealthCheckNodePort }, nil),
		specField("loadBalancerIP", exclusive, func(s *spec) *string { return &s.LoadBalancerIP }, nil),
		specField("loadBalancerSourceRanges", exclusive, func(s *spec) *[]string { return &s.LoadBalancerSourceRanges }, nil),
		specField("loadBalancerClass", exclusive, func(s *spec) **string { return &s.LoadBalancerClass }, nil),
		specField("allocateLoadBalancerNodePorts", exclusive, func(s *spec) **bool { return &s.AllocateLoadBalancerNodePorts }, nil),
		specField("publishNotReadyAddresses", exclusive, func(s *spec) *bool { return &s.PublishNotReadyAddresses }, nil),
	}
}()

// servicePorts are the ports of a derived Service. The API server merges them
// by port number and protocol, and fills in node ports.
var servicePorts = field[corev1.ServiceSpec]{
	name: "ports",
	set: func(p *importer, desired *corev1.ServiceSpec) {
		for _, port := range p.ports {
			desired.Ports = append(desired.Ports, corev1.ServicePort{
				Name: proxyName(port, p.ports), Protocol: port.Protocol, AppProtocol: port.AppProtocol,
				Port: port.Port, TargetPort: p.target(port),
			})
		}
	},
	names: func(desired *corev1.ServiceSpec) (names []string) {
		for _, port := range desired.Ports {
			names = append(names, fmt.Sprintf("port %d/%s", port.Port, port.Protocol))
			if port.AppProtocol != nil {
				names = append(names, fmt.Sprintf("appProtocol of %d/%s", port.Port, port.Protocol))
			}
		}
		return names
	},
	asDesired: func(current, desired *corev1.ServiceSpec) bool {
		for _, want := range desired.Ports {
			if !slices.ContainsFunc(current.Ports, func(port corev1.ServicePort) bool {
				port.NodePort = 0
				return equality.Semantic.DeepEqual(port, want)
			}) {
				return false
			}
		}
		return true
	},
	// A merge patch replaces a list as a whole.
	strip: func(current, desired *corev1.ServiceSpec) (any, bool) {
		return desired.Ports, slices.ContainsFunc(current.Ports, func(port corev1.ServicePort) bool {
			return !slices.ContainsFunc(desired.Ports, func(want corev1.ServicePort) bool {
				return want.Port == port.Port && want.Protocol == port.Protocol && (port.AppProtocol == nil || want.AppProtocol != nil)
			})
		})
	},
}

// importFields are the fields of a ServiceImport.
var importFields = func() []field[mcsv1beta1.ServiceImportSpec] {
	type spec = mcsv1beta1.ServiceImportSpec
	return []field[spec]{
		specField("type", exact, func(s *spec) *mcsv1beta1.ServiceImportType { return &s.Type }, (*importer).importType),
		// The field is required: without ports it is an empty list.
		specField("ports", exact, func(s *spec) *[]mcsv1beta1.ServicePort { return &s.Ports },
			func(p *importer) []mcsv1beta1.ServicePort { return append([]mcsv1beta1.ServicePort{}, p.ports...) }),
		specField("ips", signed|exclusive, func(s *spec) *[]string { return &s.IPs }, (*importer).importIPs),
		specField("ipFamilies", signed|exclusive, func(s *spec) *[]corev1.IPFamily { return &s.IPFamilies }, (*importer).importFamilies),
		specField("sessionAffinity", signed|exclusive, func(s *spec) *corev1.ServiceAffinity { return &s.SessionAffinity },
			func(p *importer) corev1.ServiceAffinity { return p.Desired.SessionAffinity }),
		specField("sessionAffinityConfig", signed|exclusive, func(s *spec) **corev1.SessionAffinityConfig { return &s.SessionAffinityConfig },
			func(p *importer) *corev1.SessionAffinityConfig { return p.Desired.SessionAffinityConfig }),
		specField("internalTrafficPolicy", signed|exclusive, func(s *spec) **corev1.ServiceInternalTrafficPolicy { return &s.InternalTrafficPolicy },
			func(p *importer) *corev1.ServiceInternalTrafficPolicy { return p.Desired.InternalTrafficPolicy }),
		specField("trafficDistribution", signed|exclusive, func(s *spec) **string { return &s.TrafficDistribution },
			func(p *importer) *string { return p.Desired.TrafficDistribution }),
	}
}()
