// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

func driftless() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"multicluster.kubernetes.io/service-name": "web"}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, SessionAffinity: corev1.ServiceAffinityNone,
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: "TCP"}},
		},
	}
}

func TestDriftOfService(t *testing.T) {
	app := "http"
	for _, c := range []struct {
		name   string
		change func(s *corev1.Service)
		want   mergePatch
	}{
		{"nothing", func(*corev1.Service) {}, mergePatch{}},
		{"what an apply reverts", func(s *corev1.Service) {
			s.Spec.Ports[0].Name, s.Spec.SessionAffinity, s.Labels["multicluster.kubernetes.io/service-name"] = "x", "ClientIP", "x"
		}, mergePatch{}},
		{"labels of users, and ours", func(s *corev1.Service) { s.Labels["mine"], s.Labels["comity.dev/x"] = "", "" }, mergePatch{}},
		{"labels that are read", func(s *corev1.Service) {
			s.Labels["kubernetes.io/service-name"], s.Labels["service.kubernetes.io/headless"], s.Labels["multicluster.kubernetes.io/source-cluster"] = "", "", ""
		}, mergePatch{"metadata": map[string]any{"labels": map[string]any{
			"kubernetes.io/service-name": nil, "service.kubernetes.io/headless": nil, "multicluster.kubernetes.io/source-cluster": nil,
		}}}},
		{"a port more", func(s *corev1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "x", Port: 80, Protocol: "UDP"})
		}, mergePatch{"spec": map[string]any{"ports": driftless().Spec.Ports}}},
		{"an appProtocol", func(s *corev1.Service) { s.Spec.Ports[0].AppProtocol = &app }, mergePatch{"spec": map[string]any{"ports": driftless().Spec.Ports}}},
		{"a config goes with the affinity that it needs", func(s *corev1.Service) {
			s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = "ClientIP", &corev1.SessionAffinityConfig{}
		}, mergePatch{"spec": map[string]any{"sessionAffinity": corev1.ServiceAffinityNone, "sessionAffinityConfig": nil}}},
		{"source ranges go with the type that they need", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.LoadBalancerSourceRanges = corev1.ServiceTypeLoadBalancer, []string{"192.0.2.0/24"}
		}, mergePatch{"spec": map[string]any{"type": corev1.ServiceTypeClusterIP, "loadBalancerSourceRanges": nil}}},
	} {
		current, desired := driftless(), driftless()
		c.change(current)
		_, strip := compareService(&current.Spec, &desired.Spec)
		if diff := cmp.Diff(c.want, strayPatch(current, desired, strip)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func importDrift(current, desired *mcsv1beta1.ServiceImport) mergePatch {
	_, strip := compareSpec(&current.Spec, &desired.Spec)
	return strayPatch(current, desired, strip)
}

func TestDriftOfImportAndSlice(t *testing.T) {
	headless := &mcsv1beta1.ServiceImport{}
	edited := &mcsv1beta1.ServiceImport{Spec: mcsv1beta1.ServiceImportSpec{IPs: []string{"10.0.0.1"}, SessionAffinity: "ClientIP"}}
	want := mergePatch{"spec": map[string]any{"ips": nil, "sessionAffinity": nil}}
	if diff := cmp.Diff(want, importDrift(edited, headless)); diff != "" {
		t.Errorf("import (-want +got):\n%s", diff)
	}
	if p := importDrift(headless, edited); len(p) > 0 {
		t.Errorf("what is missing is applied, not stripped: %v", p)
	}
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"service.kubernetes.io/service-proxy-name": "x", "mine": "y"}}}
	want = mergePatch{"metadata": map[string]any{"labels": map[string]any{"service.kubernetes.io/service-proxy-name": nil}}}
	if diff := cmp.Diff(want, strayPatch(s, &discoveryv1.EndpointSlice{}, nil)); diff != "" {
		t.Errorf("slice (-want +got):\n%s", diff)
	}
}
