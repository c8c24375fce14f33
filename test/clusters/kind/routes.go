// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"fmt"
	"strings"
)

// Connect joins the Pod networks of clusters, as MCS without tunnels assumes:
// every node gets a route to every other cluster's Pods in each IP family that
// both have, and Pods keep their own address on the way. Repeat it after a node
// was restarted.
func Connect(ctx context.Context, all []*Cluster) error {
	for _, c := range all {
		if err := c.onNodes(ctx, script(c, all)); err != nil {
			return fmt.Errorf("route from cluster %s to the others: %w", c.Name(), err)
		}
	}
	return nil
}

// families are the IP families as nft names them.
var families = []struct {
	table string
	is4   bool
}{{"ip", true}, {"ip6", false}}

// script is what a node of c runs. The CNI of kind masquerades whatever leaves
// the cluster, each version in chains of its own. Instead of editing those, a
// chain that runs before them maps such Pods' source address to itself: a
// connection that has a source mapping is not given another.
func script(c *Cluster, all []*Cluster) string {
	var out strings.Builder
	for _, family := range families {
		var routes, remote, local []string
		for _, other := range all {
			for _, l := range other.links(family.is4) {
				if other == c {
					local = append(local, l.podCIDR.String())
					continue
				}
				remote = append(remote, l.podCIDR.String())
				routes = append(routes, fmt.Sprintf("ip route replace %s via %s\n", l.podCIDR, l.address))
			}
		}
		if len(remote) == 0 || len(local) == 0 {
			continue
		}
		out.WriteString(strings.Join(routes, ""))
		fmt.Fprintf(&out, `nft -f - <<'END'
table %[1]s comity-pods
delete table %[1]s comity-pods
table %[1]s comity-pods {
	chain keep-source {
		type nat hook postrouting priority srcnat - 10; policy accept;
		%[1]s saddr { %[2]s } %[1]s daddr { %[3]s } snat to %[1]s saddr
	}
}
END
`, family.table, strings.Join(local, ", "), strings.Join(remote, ", "))
	}
	return out.String()
}

// links are those of one IP family of all nodes.
func (c *Cluster) links(is4 bool) []link {
	var found []link
	for _, n := range c.nodes {
		for _, l := range n.links {
			if l.address.Is4() == is4 {
				found = append(found, l)
			}
		}
	}
	return found
}
