// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/sync/model"
)

var web = types.NamespacedName{Namespace: "shop", Name: "web"}

func aSlice(addresses ...string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-x1",
			Labels: map[string]string{discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io", "app": "web"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: addresses, Hostname: ptr.To("web-0"), Zone: ptr.To("z1"), NodeName: ptr.To("n1"),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true)},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Name: "web-0"},
			Hints:      &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z1"}}},
		}},
	}
}

func copyOf(t *testing.T, source *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	t.Helper()
	out, ok := CopySlice(web, source)
	if !ok {
		t.Fatal("not copied")
	}
	return out
}

func TestACopyHoldsWhatAnotherClusterUnderstandsAndNothingElse(t *testing.T) {
	want := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "shop.web-x1",
			Labels: map[string]string{
				"service.kubernetes.io/headless": "", discoveryv1.LabelManagedBy: "comity",
				model.LabelExportNamespace: "shop", model.LabelExportName: "web", "app": "web",
			},
			Annotations: map[string]string{model.AnnotationSourceSlice: "web-x1"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       aSlice().Ports,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{"10.1.0.1"}, Hostname: ptr.To("web-0"), Zone: ptr.To("z1"),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true)},
		}},
	}
	got := copyOf(t, aSlice("10.1.0.1"))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	key, source, ok := SliceKey(got)
	if !ok || key != web || source != "web-x1" {
		t.Errorf("read back as %v, %q, %v", key, source, ok)
	}
}

func TestASliceOfHostNamesIsNotCopied(t *testing.T) {
	s := aSlice("example.com")
	s.AddressType = discoveryv1.AddressTypeFQDN
	if _, ok := CopySlice(web, s); ok {
		t.Error("copied")
	}
}

func TestCheckAddress(t *testing.T) {
	for address, want := range map[string]AddressProblem{
		"10.1.0.1": AddressFine, "192.0.2.1": AddressFine,
		"": AddressMalformed, "10.1.0": AddressMalformed, "010.1.0.1": AddressMalformed, "10.1.0.1:80": AddressMalformed, "host": AddressMalformed,
		"fd00::1": AddressWrongFamily, "::ffff:10.1.0.1": AddressWrongFamily,
		"0.0.0.0": AddressUnspecified, "127.0.0.1": AddressLoopback, "127.255.0.9": AddressLoopback,
		"169.254.169.254": AddressLinkLocal, "224.0.0.1": AddressMulticast, "239.1.2.3": AddressMulticast, "255.255.255.255": AddressBroadcast,
	} {
		if got := CheckAddress(discoveryv1.AddressTypeIPv4, address); got != want {
			t.Errorf("IPv4 %q: got %q, want %q", address, got, want)
		}
	}
	for address, want := range map[string]AddressProblem{
		"fd00::1": AddressFine, "2001:db8::5": AddressFine,
		"fd00:0::1": AddressMalformed, "FD00::1": AddressMalformed, "fe80::1%eth0": AddressMalformed,
		"10.1.0.1": AddressWrongFamily, "::ffff:10.1.0.1": AddressWrongFamily,
		"::": AddressUnspecified, "::1": AddressLoopback, "fe80::1": AddressLinkLocal, "ff02::1": AddressMulticast,
	} {
		if got := CheckAddress(discoveryv1.AddressTypeIPv6, address); got != want {
			t.Errorf("IPv6 %q: got %q, want %q", address, got, want)
		}
	}
}

func TestOneBadPartDoesNotCostTheSlice(t *testing.T) {
	s := copyOf(t, aSlice("10.1.0.1", "127.0.0.1"))
	s.Endpoints = append(s.Endpoints,
		discoveryv1.Endpoint{Addresses: []string{"169.254.169.254"}},
		discoveryv1.Endpoint{Addresses: []string{"10.1.0.2"}, Hostname: ptr.To("Not_A_Label"), Zone: ptr.To(strings.Repeat("z", 64))},
		discoveryv1.Endpoint{},
	)
	s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr.To("http")}, discoveryv1.EndpointPort{Name: ptr.To("big"), Port: ptr.To[int32](70000)})
	before := s.DeepCopy()

	clean, report := CleanSlice(s)
	if diff := cmp.Diff(before, s); diff != "" {
		t.Errorf("the original was changed:\n%s", diff)
	}
	var kept []string
	for _, e := range clean.Endpoints {
		kept = append(kept, e.Addresses...)
	}
	if diff := cmp.Diff([]string{"10.1.0.1", "10.1.0.2"}, kept); diff != "" {
		t.Error(diff)
	}
	want := Report{Total: 7, Dropped: []Dropped{
		{"endpoints[0].addresses[1]", `"127.0.0.1"`, "Loopback"},
		{"endpoints[1].addresses[0]", `"169.254.169.254"`, "LinkLocal"},
		{"endpoints[2].hostname", `"Not_A_Label"`, "Invalid"},
		{"endpoints[2].zone", `"` + strings.Repeat("z", 64) + `"`, "Invalid"},
		{"endpoints[3].addresses", `"0 addresses"`, "Invalid"},
		{"ports[1]", `"http"`, "Invalid"},
		{"ports[2]", `"big"`, "Invalid"},
	}}
	if diff := cmp.Diff(want, report); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsDroppedIsToldInBounds(t *testing.T) {
	s := copyOf(t, aSlice("10.1.0.1"))
	for i := range 500 {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("127.0.%d.%d", i/250, i%250)}})
	}
	_, report := CleanSlice(s)
	if len(report.Dropped) != 10 || report.Total != 500 {
		t.Errorf("told of %d of %d", len(report.Dropped), report.Total)
	}
}

func TestACleanSliceIsNotCopied(t *testing.T) {
	s := copyOf(t, aSlice("10.1.0.1"))
	if clean, report := CleanSlice(s); clean != s || report.Total != 0 {
		t.Errorf("got another slice, or a report: %v", report)
	}
}

func TestASliceThatCannotBeImportedAtAll(t *testing.T) {
	for name, spoil := range map[string]func(*discoveryv1.EndpointSlice){
		"host names":           func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeFQDN },
		"too many endpoints":   func(s *discoveryv1.EndpointSlice) { s.Endpoints = make([]discoveryv1.Endpoint, 1001) },
		"a namespace injected": func(s *discoveryv1.EndpointSlice) { s.Labels[model.LabelExportNamespace] = "../kube-system" },
		"no export":            func(s *discoveryv1.EndpointSlice) { delete(s.Labels, model.LabelExportName) },
		"no source":            func(s *discoveryv1.EndpointSlice) { delete(s.Annotations, model.AnnotationSourceSlice) },
	} {
		s := copyOf(t, aSlice("10.1.0.1"))
		spoil(s)
		if clean, report := CleanSlice(s); clean != nil || report.Total == 0 {
			t.Errorf("%s: imported, or not told", name)
		}
	}
}

func FuzzCheckAddress(f *testing.F) {
	for _, s := range []string{"10.1.0.1", "::1", "fe80::1%25", "0x7f.1", "::ffff:7f00:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, address string) {
		v4 := CheckAddress(discoveryv1.AddressTypeIPv4, address) == AddressFine
		v6 := CheckAddress(discoveryv1.AddressTypeIPv6, address) == AddressFine
		if v4 && v6 {
			t.Errorf("%q is fine in both families", address)
		}
		if (v4 || v6) && strings.ContainsAny(address, "%/ \n") {
			t.Errorf("%q is fine", address)
		}
	})
}
