// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package admit_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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
			if tc.was == nil {
				tc.was = &metav1.ObjectMeta{}
			}
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
