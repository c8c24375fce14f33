// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package admit_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/webhook/admit"
)

func metadata(labels, annotations map[string]string) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{Namespace: "production", Name: "internal-api", Labels: labels, Annotations: annotations}
}

func TestMoveScope(t *testing.T) {
	type m = map[string]string
	const label, annotation = "export-to", "comity.dev/export-to"

	for _, tc := range []struct {
		name            string
		now, was        *metav1.ObjectMeta
		wantLabels      m
		wantAnnotations m
		wantError       string
	}{
		{
			name:            "without the label nothing changes",
			now:             metadata(m{"app": "x"}, m{annotation: "b"}),
			wantLabels:      m{"app": "x"},
			wantAnnotations: m{annotation: "b"},
		},
		{
			name:            "the label becomes the annotation",
			now:             metadata(m{label: "cluster-2,cluster-3"}, nil),
			wantLabels:      m{},
			wantAnnotations: m{annotation: "cluster-2,cluster-3"},
		},
		{
			name:            "other labels and annotations stay",
			now:             metadata(m{label: "b", "app": "x"}, m{"note": "y"}),
			wantLabels:      m{"app": "x"},
			wantAnnotations: m{annotation: "b", "note": "y"},
		},
		{
			name:            "a label that names nothing becomes an annotation that names nothing, not the whole set",
			now:             metadata(m{label: ""}, nil),
			wantLabels:      m{},
			wantAnnotations: m{annotation: ""},
		},
		{
			name:            "equal scopes are one scope",
			now:             metadata(m{label: "b,c"}, m{annotation: "b,c"}),
			wantLabels:      m{},
			wantAnnotations: m{annotation: "b,c"},
		},
		{
			name:      "two scopes in one creation are refused",
			now:       metadata(m{label: "b,c"}, m{annotation: "b"}),
			wantError: `ServiceExport production/internal-api: label export-to is "b,c", but annotation comity.dev/export-to is "b"; expected one scope. Remedy: keep the annotation and remove the label`,
		},
		{
			name:      "two scopes written in one update are refused",
			now:       metadata(m{label: "b,c"}, m{annotation: "b"}),
			was:       metadata(nil, m{annotation: "c"}),
			wantError: `ServiceExport production/internal-api: label export-to is "b,c", but annotation comity.dev/export-to is "b"; expected one scope. Remedy: keep the annotation and remove the label`,
		},
		{
			name:            "an edited label replaces the annotation that it once became",
			now:             metadata(m{label: "c"}, m{annotation: "b,c"}),
			was:             metadata(nil, m{annotation: "b,c"}),
			wantLabels:      m{},
			wantAnnotations: m{annotation: "c"},
		},
		{
			name:            "what is stored since before the webhook is no reason to refuse another change",
			now:             metadata(m{label: "c"}, m{annotation: "b"}),
			was:             metadata(m{label: "c"}, m{annotation: "b"}),
			wantLabels:      m{label: "c"},
			wantAnnotations: m{annotation: "b"},
		},
		{
			name:            "a label stored since before the webhook moves with the next change",
			now:             metadata(m{label: "c"}, nil),
			was:             metadata(m{label: "c"}, nil),
			wantLabels:      m{},
			wantAnnotations: m{annotation: "c"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := admit.MoveScope(tc.now, tc.was)
			if tc.wantError != "" {
				if err == nil || err.Error() != tc.wantError {
					t.Fatalf("error:\n got %v\nwant %s", err, tc.wantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(metadata(tc.wantLabels, tc.wantAnnotations), tc.now, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("metadata (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCheckSelector(t *testing.T) {
	type m = map[string]string
	const selector = "comity.dev/export-to-selector"
	for _, tc := range []struct {
		name      string
		now, was  *metav1.ObjectMeta
		wantError string
	}{
		{"no selector", metadata(nil, nil), nil, ""},
		{"a selector", metadata(nil, m{selector: "region=eu,tier!=test"}), nil, ""},
		{"one that selects no member now", metadata(nil, m{selector: "region=mars"}), nil, ""},
		{
			"one that cannot be read", metadata(nil, m{selector: "a=b=c"}), nil,
			`ServiceExport production/internal-api, annotation comity.dev/export-to-selector: "a=b=c" is not a label selector such as "region=eu,tier!=test": ` +
				`found '=', expected: ',' or 'end of string'. Remedy: correct the selector, or remove the annotation`,
		},
		{
			"an empty one", metadata(nil, m{selector: " "}), nil,
			`ServiceExport production/internal-api, annotation comity.dev/export-to-selector: the selector is empty; expected a label selector such as "region=eu,tier!=test". ` +
				"Remedy: correct the selector, or remove the annotation",
		},
		{"one that was stored and stays", metadata(nil, m{selector: "a=b=c"}), metadata(nil, m{selector: "a=b=c"}), ""},
		{
			"an update that writes it", metadata(nil, m{selector: ""}), metadata(nil, m{selector: "a=b"}),
			`ServiceExport production/internal-api, annotation comity.dev/export-to-selector: the selector is empty; expected a label selector such as "region=eu,tier!=test". ` +
				"Remedy: correct the selector, or remove the annotation",
		},
		{"an update that removes it", metadata(nil, nil), metadata(nil, m{selector: "a=b=c"}), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			if err := admit.CheckSelector(tc.now, tc.was); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.wantError, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCheckPorts(t *testing.T) {
	type m = map[string]string
	const ports = "comity.dev/export-ports"
	const start = "ServiceExport production/internal-api, annotation comity.dev/export-ports: "
	const remedy = ". Remedy: correct the list, or remove the annotation to export every port"
	service := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "admin", Port: 90}}}}
	for _, tc := range []struct {
		name      string
		now, was  *metav1.ObjectMeta
		service   *corev1.Service
		wantError string
	}{
		{"no list", metadata(nil, nil), nil, service, ""},
		{"a list", metadata(nil, m{ports: "http, admin"}), nil, service, ""},
		{"a list before there is a Service", metadata(nil, m{ports: "metrics"}), nil, nil, ""},
		{
			"a name that the Service does not have", metadata(nil, m{ports: "http,metrics"}), nil, service,
			start + `Service production/internal-api has no port named "metrics"; it has "http", "admin"; name ports that the Service has, or give its ports these names` + remedy,
		},
		{
			"an empty list", metadata(nil, m{ports: ""}), nil, service,
			start + `the list names no port; expected names of ports separated by commas, such as "http,grpc"` + remedy,
		},
		{"a repeated name, without a Service", metadata(nil, m{ports: "http,http"}), nil, nil, start + `item 2 of "http,http" repeats "http"; expected each name once` + remedy},
		{"what was stored and stays", metadata(nil, m{ports: "metrics"}), metadata(nil, m{ports: "metrics"}), service, ""},
		{
			"an update that writes it", metadata(nil, m{ports: "HTTP"}), metadata(nil, m{ports: "http"}), service,
			start + `item 1 of "HTTP" is "HTTP", which is not a port name; expected names of ports separated by commas, such as "http,grpc"` + remedy,
		},
		{"an update that removes it", metadata(nil, nil), metadata(nil, m{ports: "metrics"}), service, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			if err := admit.CheckPorts(tc.now, tc.was, tc.service); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.wantError, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}
