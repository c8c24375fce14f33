// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/sync/model"
)

func node(zone string, podCIDRs ...string) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelTopologyZone: zone}},
		Spec:       corev1.NodeSpec{PodCIDRs: podCIDRs},
	}
}

func cidr(name string, cidrs ...string) networkingv1.ServiceCIDR {
	return networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs}}
}

// facts are what was read of the cluster.
type facts struct {
	nodes   corev1.NodeList
	cidrs   networkingv1.ServiceCIDRList
	service corev1.Service
}

func (f facts) compute(given model.LocalCluster) model.LocalCluster {
	return compute(given, f.nodes.Items, f.cidrs.Items, f.service.Spec.IPFamilies)
}

func nodes(items ...corev1.Node) corev1.NodeList { return corev1.NodeList{Items: items} }

func cidrs(items ...networkingv1.ServiceCIDR) networkingv1.ServiceCIDRList {
	return networkingv1.ServiceCIDRList{Items: items}
}

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func TestCompute(t *testing.T) {
	const four, six = corev1.IPv4Protocol, corev1.IPv6Protocol
	kubernetes := corev1.Service{Spec: corev1.ServiceSpec{IPFamilies: []corev1.IPFamily{six, four}}}
	cases := []struct {
		name string
		opts model.LocalCluster
		in   facts
		want model.LocalCluster
	}{
		{"nothing is known of an empty cluster", model.LocalCluster{}, facts{}, model.LocalCluster{}},
		{
			"the kubernetes ServiceCIDR gives the order of families, all of them the ranges",
			model.LocalCluster{},
			facts{cidrs: cidrs(cidr("extra", "10.9.0.0/24"), cidr("kubernetes", "10.1.0.0/16", "fd01::/108")), service: kubernetes},
			model.LocalCluster{Families: []corev1.IPFamily{four, six}, ServiceCIDRs: prefixes("10.1.0.0/16", "10.9.0.0/24", "fd01::/108")},
		},
		{
			"an extra ServiceCIDR gives no family",
			model.LocalCluster{}, facts{cidrs: cidrs(cidr("extra", "fd01::/108"), cidr("kubernetes", "10.1.0.0/16"))},
			model.LocalCluster{Families: []corev1.IPFamily{four}, ServiceCIDRs: prefixes("10.1.0.0/16", "fd01::/108")},
		},
		{
			"without ServiceCIDRs the kubernetes Service tells the families, and no range",
			model.LocalCluster{}, facts{service: kubernetes}, model.LocalCluster{Families: []corev1.IPFamily{six, four}},
		},
		{
			"flags win",
			model.LocalCluster{PodCIDRs: prefixes("10.128.0.0/9"), ServiceCIDRs: prefixes("10.2.0.0/16", "fd02::/108")},
			facts{nodes: nodes(node("z", "10.244.0.0/24")), cidrs: cidrs(cidr("kubernetes", "fd01::/108")), service: kubernetes},
			model.LocalCluster{
				Families: []corev1.IPFamily{four, six}, Zones: []string{"z"},
				PodCIDRs: prefixes("10.128.0.0/9"), ServiceCIDRs: prefixes("10.2.0.0/16", "fd02::/108"),
			},
		},
		{
			"zones are sorted, each once, and neighboring pod ranges are one",
			model.LocalCluster{},
			facts{nodes: nodes(node("b", "10.244.1.0/24", "fd00:1::/64"), node("a", "10.244.0.0/24"), node("b", "10.244.2.0/24"), node(""),
				corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: []string{"10.245.0.0/24"}}})},
			model.LocalCluster{Zones: []string{"a", "b"}, PodCIDRs: prefixes("10.244.0.0/23", "10.244.2.0/24", "10.245.0.0/24", "fd00:1::/64")},
		},
		{
			"what is no prefix is left out",
			model.LocalCluster{}, facts{nodes: nodes(node("", "garbage", "10.244.0.9/24"))}, model.LocalCluster{PodCIDRs: prefixes("10.244.0.0/24")},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			equal := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
			if diff := cmp.Diff(c.want, c.in.compute(c.opts), equal); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestAggregateHoldsTheSameAddresses compares every address of a small world.
func TestAggregateHoldsTheSameAddresses(t *testing.T) {
	holds := func(list []netip.Prefix, ip netip.Addr) bool {
		for _, p := range list {
			if p.Contains(ip) {
				return true
			}
		}
		return false
	}
	rapid.Check(t, func(t *rapid.T) {
		var in []netip.Prefix
		for range rapid.IntRange(0, 12).Draw(t, "prefixes") {
			last := byte(rapid.IntRange(0, 255).Draw(t, "address"))
			in = append(in, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, last}), rapid.IntRange(24, 32).Draw(t, "bits")).Masked())
		}
		out := aggregate(in)
		for last := range 256 {
			ip := netip.AddrFrom4([4]byte{10, 0, 0, byte(last)})
			if holds(in, ip) != holds(out, ip) {
				t.Fatalf("%v became %v: they differ in %s", in, out, ip)
			}
		}
		for i := 1; i < len(out); i++ {
			if _, ok := join(out[i-1], out[i]); ok || out[i-1].Overlaps(out[i]) {
				t.Fatalf("%v became %v, which is not the shortest", in, out)
			}
		}
	})
}

func TestManyNodesAreFewRanges(t *testing.T) {
	var many []corev1.Node
	for i := range 4096 {
		many = append(many, node("", fmt.Sprintf("10.%d.%d.0/24", 64+i/256, i%256)))
	}
	if got := (facts{nodes: nodes(many...)}).compute(model.LocalCluster{}).PodCIDRs; len(got) != 1 || got[0] != netip.MustParsePrefix("10.64.0.0/12") {
		t.Errorf("4,096 neighboring ranges: %v", got)
	}
}

func TestTrimNodeKeepsWhatComputeReads(t *testing.T) {
	full := node("a", "10.0.0.0/24")
	full.Name, full.ResourceVersion = "n", "7"
	full.Labels["other"] = "label"
	full.Status.Images = []corev1.ContainerImage{{Names: []string{"image"}}}
	trimmed, err := TrimNode(full.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	got := trimmed.(*corev1.Node)
	if got.Name != "n" || got.ResourceVersion != "7" || len(got.Status.Images) != 0 || len(got.Labels) != 1 {
		t.Errorf("trimmed to %v", got)
	}
	equal := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	if diff := cmp.Diff(facts{nodes: nodes(full)}.compute(model.LocalCluster{}), facts{nodes: nodes(*got)}.compute(model.LocalCluster{}), equal); diff != "" {
		t.Errorf("(-full +trimmed):\n%s", diff)
	}
}
