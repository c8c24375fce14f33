// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/test/clusters"
)

func newNode(name string, links ...string) node {
	n := node{name: name}
	for i := 0; i < len(links); i += 2 {
		n.links = append(n.links, link{netip.MustParseAddr(links[i]), netip.MustParsePrefix(links[i+1])})
	}
	return n
}

func TestANodeRoutesToOtherClustersOnly(t *testing.T) {
	a := &Cluster{id: "a", nodes: []node{newNode("a-1", "172.18.0.2", "10.101.0.0/24"), newNode("a-2", "172.18.0.3", "10.101.1.0/24")}}
	b := &Cluster{id: "b", nodes: []node{newNode("b-1", "172.18.0.4", "10.102.0.0/24", "fc00::4", "fd00:100:2::/64")}}
	const want = `ip route replace 10.102.0.0/24 via 172.18.0.4
nft -f - <<'END'
table ip comity-pods
delete table ip comity-pods
table ip comity-pods {
	chain keep-source {
		type nat hook postrouting priority srcnat - 10; policy accept;
		ip saddr { 10.101.0.0/24, 10.101.1.0/24 } ip daddr { 10.102.0.0/24 } snat to ip saddr
	}
}
END
`
	if diff := cmp.Diff(want, script(a, []*Cluster{a, b})); diff != "" {
		t.Error(diff)
	}
	if alone := script(a, []*Cluster{a}); alone != "" {
		t.Errorf("a cluster alone runs %q", alone)
	}
}

func TestANodeRoutesBothFamiliesThatBothClustersHave(t *testing.T) {
	a := &Cluster{id: "a", nodes: []node{newNode("a-1", "172.18.0.2", "10.101.0.0/24", "fc00::2", "fd00:100:1::/64")}}
	b := &Cluster{id: "b", nodes: []node{newNode("b-1", "172.18.0.4", "10.102.0.0/24", "fc00::4", "fd00:100:2::/64")}}
	const want = `ip route replace fd00:100:2::/64 via fc00::4
nft -f - <<'END'
table ip6 comity-pods
delete table ip6 comity-pods
table ip6 comity-pods {
	chain keep-source {
		type nat hook postrouting priority srcnat - 10; policy accept;
		ip6 saddr { fd00:100:1::/64 } ip6 daddr { fd00:100:2::/64 } snat to ip6 saddr
	}
}
END
`
	have := script(a, []*Cluster{a, b})
	if !strings.HasPrefix(have, "ip route replace 10.102.0.0/24 via 172.18.0.4\n") {
		t.Errorf("the script does not begin with the route of IPv4:\n%s", have)
	}
	if _, ipv6, _ := strings.Cut(have, "END\n"); cmp.Diff(want, ipv6) != "" {
		t.Error(cmp.Diff(want, ipv6))
	}
}

func TestANodeNeedsAnAddressInEachFamily(t *testing.T) {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	n.Spec.PodCIDRs = []string{"fd00:100:1::/64", "10.101.0.0/24"}
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "n"}, {Type: corev1.NodeInternalIP, Address: "172.18.0.2"},
	}
	if _, err := linksOf(n, 2); err == nil || !strings.Contains(err.Error(), "node n has Pod CIDRs [fd00:100:1::/64 10.101.0.0/24]") {
		t.Errorf("a node without an IPv6 address gives %v", err)
	}
	n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "fc00::2"})
	links, err := linksOf(n, 2)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(newNode("", "172.18.0.2", "10.101.0.0/24", "fc00::2", "fd00:100:1::/64").links, links,
		cmp.AllowUnexported(link{}), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Error(diff)
	}
}

func TestSetsWithTheSameIDsHaveOtherNames(t *testing.T) {
	for want, c := range map[string]*Cluster{"comity-a": {id: "a"}, "comity-two-a": {set: "two", id: "a"}} {
		if name := c.Name(); name != want {
			t.Errorf("the name is %s, want %s", name, want)
		}
	}
}

func TestTheConfigurationNamesFamiliesModeOfKubeProxyAndPeriodOfKubelets(t *testing.T) {
	for _, c := range []struct {
		name, mode, want, more string
		family                 clusters.Family
		podSync                time.Duration
	}{
		{name: "IPv4, kind's default mode", family: clusters.IPv4, want: `  podSubnet: 10.101.0.0/16
  serviceSubnet: 10.201.0.0/16
`},
		{name: "a kubelet that looks more often", family: clusters.IPv4, podSync: 10 * time.Second, want: `  podSubnet: 10.101.0.0/16
  serviceSubnet: 10.201.0.0/16
`, more: `- |
  kind: KubeletConfiguration
  syncFrequency: 10s
`},
		{name: "both families, nftables", mode: "nftables", family: clusters.DualStack, want: `  podSubnet: 10.101.0.0/16,fd00:100:1::/48
  serviceSubnet: 10.201.0.0/16,fd00:200:1::/108
  ipFamily: dual
  kubeProxyMode: nftables
`, more: proxyLogs},
		{name: "IPv6 alone", family: clusters.IPv6, want: `  podSubnet: fd00:100:1::/48
  serviceSubnet: fd00:200:1::/108
  ipFamily: ipv6
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			network, err := clusters.NetworkOf(1, c.family)
			if err != nil {
				t.Fatal(err)
			}
			zones := []string{"", ""} // set later
			if c.mode == "nftables" {
				zones = []string{", topology.kubernetes.io/zone: a-1", ", topology.kubernetes.io/zone: a-2"}
			}
			want := "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnetworking:\n" + c.want + patches + c.more + `nodes:
- role: control-plane
  labels: {topology.kubernetes.io/region: a` + zones[0] + `}
- role: worker
  labels: {topology.kubernetes.io/region: a` + zones[1] + `}
`
			options := Options{Workers: 1, PodSync: c.podSync, ProxyModes: map[string]string{"a": c.mode}}
			if diff := cmp.Diff(want, (&Cluster{id: "a", network: network}).kindConfig(options)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
