// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Connect joins the Pod networks of clusters, as MCS without tunnels assumes:
// every node gets a route to every other cluster's Pods, and Pods keep their own
// address on the way. Repeat it after a node was restarted.
func Connect(ctx context.Context, all []*Cluster) error {
	for _, c := range all {
		for _, n := range c.nodes {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			_, err := c.tools.run(ctx, c.tools.docker, strings.NewReader(script(c, all)), "exec", "-i", n.name, "sh", "-e")
			cancel()
			if err != nil {
				return fmt.Errorf("route from node %s to the other clusters: %w", n.name, err)
			}
		}
	}
	return nil
}

// script is what a node of c runs. The CNI of kind masquerades whatever leaves
// the cluster, each version in chains of its own. Instead of editing those, a
// chain that runs before them maps such Pods' source address to itself: a
// connection that has a source mapping is not given another.
func script(c *Cluster, all []*Cluster) string {
	var routes, remote, local []string
	for _, other := range all {
		for _, n := range other.nodes {
			if other == c {
				local = append(local, n.podCIDR)
				continue
			}
			remote = append(remote, n.podCIDR)
			routes = append(routes, fmt.Sprintf("ip route replace %s via %s\n", n.podCIDR, n.address))
		}
	}
	if len(remote) == 0 {
		return "true\n"
	}
	return strings.Join(routes, "") + fmt.Sprintf(`nft -f - <<'END'
table ip comity-pods
delete table ip comity-pods
table ip comity-pods {
	chain keep-source {
		type nat hook postrouting priority srcnat - 10; policy accept;
		ip saddr { %s } ip daddr { %s } snat to ip saddr
	}
}
END
`, strings.Join(local, ", "), strings.Join(remote, ", "))
}
