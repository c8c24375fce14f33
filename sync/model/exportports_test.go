// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/sync/model"
)

// withPorts is a Service with ports of these names, numbered from 80.
func withPorts(names ...string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	for i, name := range names {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: name, Port: int32(80 + i)})
	}
	return s
}

func selected(s model.PortSelection, service *corev1.Service) []string {
	var names []string
	for _, p := range s.Exported(service) {
		names = append(names, p.Name)
	}
	return names
}

func TestPortsOfExport(t *testing.T) {
	service := withPorts("http", "grpc", "admin")
	for _, tc := range []struct {
		name, text string
		want       []string
		problem    string
	}{
		{"one name", "http", []string{"http"}, ""},
		{"the order is that of the Service", "admin,http", []string{"http", "admin"}, ""},
		{"white space is ignored", " http , grpc ", []string{"http", "grpc"}, ""},
		{"a name that no port has selects nothing", "metrics", nil, ""},
		{"an empty list", "", nil, `the list names no port; expected names of ports separated by commas, such as "http,grpc"`},
		{"white space alone", " ", nil, "the list names no port"},
		{"an empty item", "http,,grpc", nil, `item 2 of "http,,grpc" is empty; expected names of ports separated by single commas`},
		{"a comma at the end", "http,", nil, `item 2 of "http," is empty`},
		{"a repeated name", "http, http", nil, `item 2 of "http, http" repeats "http"; expected each name once`},
		{"a number", "80", nil, ""}, // Kubernetes allows it as a name
		{"a name with capitals", "HTTP", nil, `item 1 of "HTTP" is "HTTP", which names no port`},
		{"a range", "8000:8010", nil, `is "8000:8010", which names no port`},
		{"a star", "*", nil, `is "*", which names no port`},
		{"another separator", "http;grpc", nil, `is "http;grpc", which names no port`},
		{"a name that is too long", strings.Repeat("x", 64), nil, "which names no port"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			export := &metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: map[string]string{model.AnnotationExportPorts: tc.text}}
			got, err := model.PortsOfExport(export)
			if diff := cmp.Diff(tc.want, selected(got, service)); diff != "" {
				t.Errorf("ports (-want +got):\n%s", diff)
			}
			switch {
			case (err == nil) != (tc.problem == ""):
				t.Fatalf("error %v, want %q", err, tc.problem)
			case err != nil && (!strings.HasPrefix(err.Error(), "ServiceExport shop/web, annotation comity.dev/export-ports: ") || !strings.Contains(err.Error(), tc.problem)):
				t.Errorf("error %q, want %q", err, tc.problem)
			case got.All():
				t.Error("it selects every port")
			}
		})
	}
	if got, err := model.PortsOfExport(&metav1.ObjectMeta{}); err != nil || !got.All() || len(got.Exported(service)) != 3 || !got.Contains("") {
		t.Errorf("without the annotation: %+v, error %v", got, err)
	}
	if got := model.AllPorts().Exported(nil); got != nil {
		t.Errorf("ports of no Service: %v", got)
	}
}

func TestExportedPortsAreThoseOfTheAPI(t *testing.T) {
	h2c := "kubernetes.io/h2c"
	service := withPorts("http", "dns")
	service.Spec.Ports[0].AppProtocol, service.Spec.Ports[0].NodePort = &h2c, 30080
	service.Spec.Ports[1].Protocol = corev1.ProtocolUDP
	want := []mcsv1beta1.ServicePort{
		{Name: "http", Protocol: corev1.ProtocolTCP, AppProtocol: &h2c, Port: 80}, {Name: "dns", Protocol: corev1.ProtocolUDP, Port: 81},
	}
	if diff := cmp.Diff(want, model.AllPorts().Exported(service)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[1:], model.PortsNamed("dns").Exported(service)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMissingPortsAreNamed(t *testing.T) {
	key := types.NamespacedName{Namespace: "shop", Name: "web"}
	const start = "ServiceExport shop/web, annotation comity.dev/export-ports: the Service has no port named "
	for _, tc := range []struct {
		name    string
		names   []string
		service *corev1.Service
		want    string
	}{
		{"none", []string{"http"}, withPorts("http", "grpc"), ""},
		{"one of two", []string{"http", "metrics"}, withPorts("http", "grpc"), start + `"metrics"; its ports: "http", "grpc"; correct the annotation, or the names of the ports`},
		{"two of a port without a name", []string{"a", "b"}, withPorts(""), start + `"a", "b"; its ports: ""; correct`},
		{"of no port", []string{"a"}, withPorts(), start + `"a"; its ports: none; correct`},
		{"many", []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}, withPorts("http"), `"h" and 2 more; its ports: `},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := model.PortsNamed(tc.names...).Missing(key, tc.service)
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	if got := model.AllPorts().Missing(key, withPorts()); got != "" {
		t.Errorf("without the annotation: %q", got)
	}
}

func TestNoPortIsSelectedThatIsNotNamed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"", "a", "b", "c", "a b", "A", " a", "*"})
		text := strings.Join(rapid.SliceOfN(name, 0, 4).Draw(t, "items"), rapid.SampledFrom([]string{",", ", ", ";"}).Draw(t, "separator"))
		service := withPorts(rapid.SliceOfDistinct(rapid.SampledFrom([]string{"", "a", "b", "c", "d"}), rapid.ID).Draw(t, "ports")...)
		selection, err := model.PortsOfExport(&metav1.ObjectMeta{Annotations: map[string]string{model.AnnotationExportPorts: text}})
		var items []string
		for item := range strings.SplitSeq(text, ",") {
			items = append(items, strings.TrimSpace(item))
		}
		for _, p := range selection.Exported(service) {
			if err != nil || p.Name == "" || !slices.Contains(items, p.Name) {
				t.Fatalf("%q selects port %q, error %v", text, p.Name, err)
			}
		}
	})
}
