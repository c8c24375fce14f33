// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/comity-mcs/comity/test/clusters"
)

func TestTheZoneIsAddedToTheCorefileOfKubeadm(t *testing.T) {
	const before = `.:53 {
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       ttl 30
    }
    cache 30 {
       disable success cluster.local
       disable denial cluster.local
    }
}
`
	const after = `.:53 {
    errors
    kubernetes cluster.local clusterset.local in-addr.arpa ip6.arpa {
        multicluster clusterset.local
       pods insecure
       ttl 30
    }
    cache 30 {
       disable success cluster.local
       disable success clusterset.local
       disable denial cluster.local
       disable denial clusterset.local
    }
}
`
	for range 2 { // the second time nothing is left to do
		have, err := withClusterSet(before)
		if err != nil {
			t.Fatal(err)
		}
		if have, err = withClusterSet(have); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(after, have); diff != "" {
			t.Error(diff)
		}
	}
	if _, err := withClusterSet(".:53 {\n    forward . 1.1.1.1\n}\n"); err == nil || !strings.Contains(err.Error(), "forward . 1.1.1.1") {
		t.Errorf("a Corefile without the block gives %v, want an error that shows it", err)
	}
}

func TestANodeRoutesToOtherClustersOnly(t *testing.T) {
	a := &Cluster{id: "a", nodes: []node{{"a-1", "172.18.0.2", "10.101.0.0/24"}, {"a-2", "172.18.0.3", "10.101.1.0/24"}}}
	b := &Cluster{id: "b", nodes: []node{{"b-1", "172.18.0.4", "10.102.0.0/24"}}}
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
	if alone := script(a, []*Cluster{a}); alone != "true\n" {
		t.Errorf("a cluster alone runs %q", alone)
	}
}

func TestKubeProxyRunsInTheModeAskedFor(t *testing.T) {
	network, err := clusters.NetworkOf(1, false)
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{id: "a", network: network}
	if config := c.kindConfig(1, ""); strings.Contains(config, "kubeProxyMode") {
		t.Errorf("not asked for, and the configuration is\n%s", config)
	}
	const want = `kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
networking:
  podSubnet: 10.101.0.0/16
  serviceSubnet: 10.201.0.0/16
  kubeProxyMode: nftables
nodes:
- role: control-plane
- role: worker
`
	if diff := cmp.Diff(want, c.kindConfig(1, "nftables")); diff != "" {
		t.Error(diff)
	}
}
