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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/sync/plan"
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

func TestAnObjectIsEncodedWithItsPreconditionAndWithoutAStatus(t *testing.T) {
	service := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ServiceSpec{ClusterIP: "None"},
	}
	for _, c := range []struct {
		name         string
		object       plan.Object
		uid, version string
		want         map[string]any
	}{
		{"an update", service, "u-1", "", map[string]any{
			"metadata": map[string]any{"namespace": "default", "name": "web", "uid": "u-1"}, "spec": map[string]any{"clusterIP": "None"},
		}},
		{"an update of one version", service, "u-1", "7", map[string]any{
			"metadata": map[string]any{"namespace": "default", "name": "web", "uid": "u-1", "resourceVersion": "7"}, "spec": map[string]any{"clusterIP": "None"},
		}},
		{"a create", service, "", "1", map[string]any{
			"metadata": map[string]any{"namespace": "default", "name": "web", "resourceVersion": "1"}, "spec": map[string]any{"clusterIP": "None"},
		}},
		{"a slice without endpoints and ports", &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "empty"}, AddressType: "IPv4"}, "u-1", "", map[string]any{
			"metadata": map[string]any{"name": "empty", "uid": "u-1"}, "addressType": "IPv4", "endpoints": []any{}, "ports": []any{},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := c.object.DeepCopyObject()
			text, err := encode(c.object, types.UID(c.uid), c.version)
			if err != nil {
				t.Fatal(err)
			}
			got := fields(t, text)
			delete(got, "apiVersion")
			delete(got, "kind")
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, c.object); diff != "" {
				t.Errorf("the object was changed:\n%s", diff)
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
	b.ReportAllocs()
	for b.Loop() {
		if _, err := encode(s, "u-1", ""); err != nil {
			b.Fatal(err)
		}
	}
}
