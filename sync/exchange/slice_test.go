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
			Labels: map[string]string{
				discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io", "app": "web",
				"app.kubernetes.io/instance": "shop", "app.kubernetes.io/managed-by": "Helm", "argocd.argoproj.io/instance": "shop", "kustomize.toolkit.fluxcd.io/name": "shop",
			},
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
	out, ok := CopySlice(web, source, model.AllPorts())
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
	if _, ok := CopySlice(web, s, model.AllPorts()); ok {
		t.Error("copied")
	}
}

func TestCheckAddress(t *testing.T) {
	for address, want := range map[string]string{
		"10.1.0.1": "", "192.0.2.1": "",
		"": "Malformed", "10.1.0": "Malformed", "010.1.0.1": "Malformed", "10.1.0.1:80": "Malformed", "host": "Malformed",
		"fd00::1": "WrongFamily", "::ffff:10.1.0.1": "WrongFamily",
		"0.0.0.0": "Unspecified", "0.1.2.3": "Unspecified", "127.0.0.1": "Loopback", "127.255.0.9": "Loopback",
		"169.254.169.254": "LinkLocal", "224.0.0.1": "Multicast", "239.1.2.3": "Multicast", "255.255.255.255": "Broadcast",
	} {
		if _, got := parseAddress(discoveryv1.AddressTypeIPv4, address); got != (want == "") {
			t.Errorf("IPv4 %q, which is wrong because of %q: got %t", address, want, got)
		}
	}
	for address, want := range map[string]string{
		"fd00::1": "", "2001:db8::5": "",
		"fd00:0::1": "Malformed", "FD00::1": "Malformed", "fe80::1%eth0": "Malformed",
		"10.1.0.1": "WrongFamily", "::ffff:10.1.0.1": "WrongFamily", "::a01:1": "WrongFamily", "64:ff9b::a9fe:a9fe": "WrongFamily",
		"::": "Unspecified", "::1": "Loopback", "fe80::1": "LinkLocal", "ff02::1": "Multicast",
	} {
		if _, got := parseAddress(discoveryv1.AddressTypeIPv6, address); got != (want == "") {
			t.Errorf("IPv6 %q, which is wrong because of %q: got %t", address, want, got)
		}
	}
}

// withAddresses is a slice of as many endpoints as can be, with n addresses each and a
// host name of so many characters.
func withAddresses(t *testing.T, n, hostname int) *discoveryv1.EndpointSlice {
	s := copyOf(t, aSlice())
	s.Endpoints = nil
	for i := range maxEndpoints {
		e := discoveryv1.Endpoint{Hostname: ptr.To(strings.Repeat("h", hostname)), Zone: ptr.To(strings.Repeat("z", hostname))}
		for j := range n {
			e.Addresses = append(e.Addresses, fmt.Sprintf("10.%d.1%02d.1%02d", 100+i/100, i%100, j))
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// FAULT 30: a slice that etcd, or the API server, could not take is left out and named,
// and not even kept in memory.
func TestFault30ASliceIsBounded(t *testing.T) {
	manyBytes := withAddresses(t, 2, 63)
	for i := range manyBytes.Endpoints {
		manyBytes.Endpoints[i].Zone = ptr.To(strings.Repeat("z", 1000))
	}
	annotated := withAddresses(t, 1, 10)
	annotated.Annotations["large"] = strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		slice *discoveryv1.EndpointSlice
		kept  bool
	}{
		"many addresses":         {withAddresses(t, maxAddresses, 10), false},
		"many bytes":             {manyBytes, false},
		"a large annotation":     {annotated, false},
		"as Kubernetes makes it": {withAddresses(t, 1, 63), true},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.slice.DeepCopy()
			bounded := BoundSlice(c.slice)
			if again := BoundSlice(bounded); again != bounded {
				t.Error("it is bounded twice")
			}
			clean, report := CleanSlice(bounded, aFilter())
			if c.kept {
				if clean != c.slice || report != nil {
					t.Errorf("it loses %v", report)
				}
				return
			}
			if clean != nil || bounded.Size() > 1024 {
				t.Errorf("%d bytes are kept, and %v is imported", bounded.Size(), clean)
			}
			if diff := cmp.Diff(before, c.slice); diff != "" {
				t.Errorf("what was read is changed:\n%s", diff)
			}
			problems := report.Problems("b", aFilter())
			if len(problems) != 1 || problems[0].Reason != model.ReasonLimitExceeded || problems[0].Cluster != "b" ||
				!strings.HasPrefix(problems[0].Message, "1 EndpointSlices of cluster b are left out, ") || !strings.HasSuffix(problems[0].Message, `; the first is "web-x1" (shop.web-x1, endpoints)`) {
				t.Errorf("problems %+v", problems)
			}
		})
	}
}
