// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Block resets every connection from Pods of c to the API server of peer, those
// that are open too, until Unblock. Nodes still reach it.
func (c *Cluster) Block(ctx context.Context, peer *Cluster) error {
	server := peer.nodes[0].links[0].address
	return c.filter(ctx, fmt.Sprintf("%s daddr %s tcp dport 6443 reject with tcp reset", table(server), server))
}

// DropFrom drops every packet from Pods of peer to Pods of c, until Unblock, as a packet
// filter between two networks does.
func (c *Cluster) DropFrom(ctx context.Context, peer *Cluster) error {
	var rules []string
	for _, prefix := range peer.network.PodCIDRs {
		rules = append(rules, fmt.Sprintf("%s saddr %s drop", table(prefix.Addr()), prefix))
	}
	return c.filter(ctx, rules...)
}

// table is how nft names the family of an address.
func table(address netip.Addr) string {
	if address.Is6() {
		return "ip6"
	}
	return "ip"
}

// filter applies rules to what every node forwards, in place of those before.
func (c *Cluster) filter(ctx context.Context, rules ...string) error {
	return c.onNodes(ctx, fmt.Sprintf(`nft -f - <<'END'
table inet comity-block
delete table inet comity-block
table inet comity-block {
	chain forward {
		type filter hook forward priority filter - 10; policy accept;
		%s
	}
}
END
`, strings.Join(rules, "\n\t\t")))
}

// Unblock undoes Block, DropFrom and Cut; it does nothing where nothing is blocked.
func (c *Cluster) Unblock(ctx context.Context) error {
	return c.onNodes(ctx, "nft 'table inet comity-block; delete table inet comity-block'\n")
}

// onNodes runs a script on every node.
func (c *Cluster) onNodes(ctx context.Context, script string) error {
	for _, n := range c.nodes {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		_, err := c.tools.run(ctx, c.tools.docker, strings.NewReader(script), "exec", "-i", n.name, "sh", "-e")
		cancel()
		if err != nil {
			return fmt.Errorf("run a script on node %s: %w", n.name, err)
		}
	}
	return nil
}

// Cut drops every packet from Pods of c to the Pods and nodes of peer, until Unblock.
func (c *Cluster) Cut(ctx context.Context, peer *Cluster) error {
	var rules []string
	for _, prefix := range peer.network.PodCIDRs {
		rules = append(rules, fmt.Sprintf("%s daddr %s drop", table(prefix.Addr()), prefix))
	}
	for _, n := range peer.nodes {
		rules = append(rules, fmt.Sprintf("ip daddr %s drop", n.address()))
	}
	return c.filter(ctx, rules...)
}
