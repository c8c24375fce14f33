// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// sharing is anExport that shares the ports of a list.
func sharing(list string) *mcsv1beta1.ServiceExport {
	e := anExport()
	e.Annotations = map[string]string{model.AnnotationExportPorts: list}
	return e
}

func TestAnExportSharesTheNamedPortsAlone(t *testing.T) {
	headless := aService()
	headless.Spec.ClusterIP = corev1.ClusterIPNone
	for name, service := range map[string]*corev1.Service{"a Service": aService(), "a headless Service": headless} {
		t.Run(name, func(t *testing.T) {
			got, err := LocalExport("a", sharing("dns"), service, true)
			if err != nil {
				t.Fatal(err)
			}
			wantPorts := []mcsv1beta1.ServicePort{{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53}}
			if diff := cmp.Diff(wantPorts, Record(got).Ports); diff != "" {
				t.Errorf("ports (-want +got):\n%s", diff)
			}
			wantTargets := []model.Target{{Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromString("dns-udp")}}
			if diff := cmp.Diff(wantTargets, got.Targets); diff != "" {
				t.Errorf("targets (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAListOfPortsThatCannotBeFollowed(t *testing.T) {
	for _, tc := range []struct {
		name, list     string
		ports          []string // of the export
		warning, fails string
	}{
		{"every name exists", "dns,http", []string{"http", "dns"}, "", ""},
		{"one of two names exists", "dns,metrics", []string{"dns"}, `has no port named "metrics"; its ports: "http", "dns"`, ""},
		{"no name exists", "metrics", nil, "", `has no port named "metrics"; its ports: "http", "dns"; correct the annotation, or the names of the ports; it is exported nowhere`},
		{"it cannot be read", "dns,,http", nil, "", `item 2 of "dns,,http" is empty`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			export, err := LocalExport("a", sharing(tc.list), aService(), false)
			var ports []string
			for _, p := range export.Ports {
				ports = append(ports, p.Name)
			}
			if diff := cmp.Diff(tc.ports, ports); diff != "" {
				t.Errorf("ports (-want +got):\n%s", diff)
			}
			if (err == nil) != (tc.fails == "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("error %v, want %q", err, tc.fails)
			}
			_, warning, _ := Ports(sharing(tc.list), aService())
			if (warning == "") != (tc.warning == "") || !strings.Contains(warning, tc.warning) {
				t.Errorf("warning %q, want %q", warning, tc.warning)
			}
		})
	}
}

func TestASliceHasTheSharedPortsAlone(t *testing.T) {
	port := func(name *string, number int32) discoveryv1.EndpointPort {
		return discoveryv1.EndpointPort{Name: name, Port: ptr.To(number), Protocol: ptr.To(corev1.ProtocolTCP)}
	}
	http, admin, none, unnamed := port(ptr.To("http"), 8080), port(ptr.To("admin"), 9090), port(nil, 1), port(ptr.To(""), 2)
	for _, tc := range []struct {
		name   string
		ports  []discoveryv1.EndpointPort
		shared model.PortSelection
		want   []discoveryv1.EndpointPort
		ok     bool
	}{
		{"all are shared", []discoveryv1.EndpointPort{http, admin}, model.AllPorts(), []discoveryv1.EndpointPort{http, admin}, true},
		{"one is", []discoveryv1.EndpointPort{admin, http}, model.PortsNamed("http"), []discoveryv1.EndpointPort{http}, true},
		{"none is", []discoveryv1.EndpointPort{admin}, model.PortsNamed("http"), nil, false},
		{"ports without a name are not", []discoveryv1.EndpointPort{none, unnamed}, model.PortsNamed("http"), nil, false},
		{"a slice without ports shows addresses", nil, model.PortsNamed("http"), nil, false},
		{"a slice without ports of a Service without ports", nil, model.AllPorts(), nil, true},
		{"the one port without a name", []discoveryv1.EndpointPort{unnamed}, model.PortsNamed(""), []discoveryv1.EndpointPort{unnamed}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			source := aSlice("10.1.0.1")
			source.Ports = tc.ports
			before := source.DeepCopy()
			published, ok := CopySlice(web, source, tc.shared)
			own, here := ShareSlice(source, tc.shared)
			if ok != tc.ok || here != tc.ok {
				t.Fatalf("published: %v, imported here: %v, want %v", ok, here, tc.ok)
			}
			if diff := cmp.Diff(before, source); diff != "" {
				t.Errorf("the source was changed:\n%s", diff)
			}
			if !ok {
				return
			}
			if diff := cmp.Diff(tc.want, published.Ports); diff != "" {
				t.Errorf("published (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, own.Ports); diff != "" {
				t.Errorf("imported here (-want +got):\n%s", diff)
			}
		})
	}
}
