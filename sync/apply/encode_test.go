// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// full is a slice with every field that a plan can set, and bookkeeping that
// it should not have.
func full(endpoints int) *discoveryv1.EndpointSlice {
	s := slice("full")
	s.Labels, s.Annotations = map[string]string{"kubernetes.io/service-name": "web"}, map[string]string{"comity.dev/applied": "12"}
	s.UID, s.ResourceVersion, s.Generation = "another", "77", 3
	s.CreationTimestamp = metav1.NewTime(time.Unix(1, 0))
	s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "comity"}}
	s.Ports = []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](80), Protocol: ptr.To(corev1.ProtocolTCP), AppProtocol: ptr.To("h2c")}}
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.1.%d.%d", i/250, i%250+1)},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
			Hostname:   ptr.To("web-0"), Zone: ptr.To("z1"), NodeName: ptr.To("n1"),
			Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z1"}}},
		})
	}
	return s
}

func TestASliceIsEncodedAsAnyObjectIs(t *testing.T) {
	for _, c := range []struct {
		name  string
		slice *discoveryv1.EndpointSlice
		as    precondition
	}{
		{"an update of all that there is", full(2), precondition{uid: "u-1"}},
		{"an update of one version", full(2), precondition{"u-1", "7"}},
		{"a create of all that there is", full(2), precondition{version: "1"}},
		{"no endpoints and no ports", slice("empty"), precondition{uid: "u-1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			want, err := encodeAny(c.slice, c.as)
			if err != nil {
				t.Fatal(err)
			}
			got, err := encode(c.slice, c.as)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(fields(t, want), fields(t, got)); diff != "" {
				t.Errorf("(-any object +slice):\n%s", diff)
			}
		})
	}
}

func fields(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func BenchmarkEncode(b *testing.B) {
	s := full(100)
	for name, encoder := range map[string]func() ([]byte, error){
		"slice": func() ([]byte, error) { return encode(s, precondition{uid: "u-1"}) },
		"any":   func() ([]byte, error) { return encodeAny(s, precondition{uid: "u-1"}) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := encoder(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
