// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package admit_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/webhook/admit"
)

func TestCheckScopeAndTiers(t *testing.T) {
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
		{"tiers", metadata(nil, m{"comity.dev/tiers": "self; *"}), nil, ""},
		{
			"tiers that cannot be read", metadata(nil, m{"comity.dev/tiers": "*; self"}), nil,
			`ServiceExport production/internal-api, annotation comity.dev/tiers: the last tier is "self"; expected * (all other clusters) or none (no other cluster), as in "self; *". ` +
				"Remedy: correct the tiers, or remove the annotation",
		},
		{
			"a scope as a label", metadata(m{"comity.dev/export-to": "b"}, nil), nil,
			`ServiceExport production/internal-api, label comity.dev/export-to: expected an annotation. Remedy: remove the label, and set the annotation comity.dev/export-to`,
		},
		{
			"ports as a label", metadata(m{"comity.dev/export-ports": "http"}, nil), metadata(nil, nil),
			`ServiceExport production/internal-api, label comity.dev/export-ports: expected an annotation. Remedy: remove the label, and set the annotation comity.dev/export-ports`,
		},
		{"a label that was stored and stays", metadata(m{"comity.dev/export-to": "b"}, nil), metadata(m{"comity.dev/export-to": "b"}, nil), ""},
		{
			"a scope without the prefix", metadata(nil, m{"export-to": "b"}), nil,
			`ServiceExport production/internal-api, annotation export-to: expected comity.dev/export-to. Remedy: rename the annotation`,
		},
		{"tiers that were stored and stay", metadata(nil, m{"comity.dev/tiers": "self"}), metadata(nil, m{"comity.dev/tiers": "self"}), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			if tc.was == nil {
				tc.was = &metav1.ObjectMeta{}
			}
			if err, _ := admit.Check(tc.now, tc.was, nil); err != nil {
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
			start + `the Service has no port named "metrics"; its ports: "http", "admin"; correct the annotation, or the names of the ports` + remedy,
		},
		{
			"an empty list", metadata(nil, m{ports: ""}), nil, service,
			start + `the list names no port; expected names of ports separated by commas, such as "http,grpc"` + remedy,
		},
		{"a repeated name, without a Service", metadata(nil, m{ports: "http,http"}), nil, nil, start + `item 2 of "http,http" repeats "http"; expected each name once` + remedy},
		{"what was stored and stays", metadata(nil, m{ports: "metrics"}), metadata(nil, m{ports: "metrics"}), service, ""},
		{
			"an update that writes it", metadata(nil, m{ports: "HTTP"}), metadata(nil, m{ports: "http"}), service,
			start + `item 1 of "HTTP" is "HTTP", which names no port; expected names of ports separated by commas, such as "http,grpc", each one RFC 1123 label ` +
				`(lower-case letters, digits and '-', at most 63 characters, no dot)` + remedy,
		},
		{"an update that removes it", metadata(nil, nil), metadata(nil, m{ports: "metrics"}), service, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			if tc.was == nil {
				tc.was = &metav1.ObjectMeta{}
			}
			if err, _ := admit.Check(tc.now, tc.was, func() (*corev1.Service, error) { return tc.service, nil }); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.wantError, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}
