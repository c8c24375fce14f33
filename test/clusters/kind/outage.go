// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

const (
	// kubelet runs what has a manifest in the one folder; the other is any place beside it.
	manifest, parked = "/etc/kubernetes/manifests/kube-apiserver.yaml", "/etc/kubernetes/kube-apiserver.yaml.parked"
	// outageTimeout bounds the wait until the kubelet has done what the manifests say.
	outageTimeout = 3 * time.Minute
)

// StopAPIServer ends the API server, as an upgrade of the control plane does,
// and waits until it answers no more. Pods, kube-proxy and CoreDNS go on.
func (c *Cluster) StopAPIServer(ctx context.Context) error {
	return c.move(ctx, manifest, parked, false)
}

// StartAPIServer undoes StopAPIServer and waits until the API server is ready.
// It does nothing to one that was not stopped.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	return c.move(ctx, parked, manifest, true)
}

func (c *Cluster) move(ctx context.Context, from, to string, wanted bool) error {
	ctx, cancel := context.WithTimeout(ctx, outageTimeout)
	defer cancel()
	script := fmt.Sprintf("if [ -e %s ]; then mv %s %s; fi", from, from, to)
	if _, err := c.tools.run(ctx, c.tools.docker, nil, "exec", c.nodes[0].name, "sh", "-ec", script); err != nil {
		return err
	}
	config := c.RESTConfig()
	config.Timeout = 2 * time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, last = client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return (last == nil) == wanted, nil
	})
	if err != nil {
		return fmt.Errorf("wait until the API server of %s answers (wanted: %t): %w; it said last: %w", c.Name(), wanted, err, last)
	}
	return nil
}

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

// Freeze stops every process on the nodes of c at once, as a machine that hangs, until Thaw.
func (c *Cluster) Freeze(ctx context.Context) error { return c.onEngine(ctx, "pause") }

// Thaw undoes Freeze.
func (c *Cluster) Thaw(ctx context.Context) error { return c.onEngine(ctx, "unpause") }

func (c *Cluster) onEngine(ctx context.Context, verb string) error {
	for _, n := range c.nodes {
		if _, err := c.tools.run(ctx, c.tools.docker, nil, verb, n.name); err != nil {
			return err
		}
	}
	return nil
}

// Cut drops every packet from Pods of c to the Pods and nodes of peer, until Unblock.
func (c *Cluster) Cut(ctx context.Context, peer *Cluster) error {
	var rules []string
	for _, prefix := range peer.network.PodCIDRs {
		family := "ip"
		if prefix.Addr().Is6() {
			family = "ip6"
		}
		rules = append(rules, fmt.Sprintf("%s daddr %s drop", family, prefix))
	}
	for _, n := range peer.nodes {
		rules = append(rules, fmt.Sprintf("ip daddr %s drop", n.address()))
	}
	return c.filter(ctx, rules...)
}
