// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/comity-mcs/comity/test/clusters"
)

const (
	// createTimeout bounds kind's creation of one cluster, a download of the node image included.
	createTimeout = 10 * time.Minute
	// nodesTimeout bounds the wait for Pod CIDRs, which come right after creation.
	nodesTimeout = time.Minute
	// zoneTimeout is how long a kube-proxy may take to start, or to start again.
	zoneTimeout = 30 * time.Second
	// attemptsOfProxies is how often a kube-proxy starts that misses the zone of its node.
	attemptsOfProxies = 4
)

// node is one machine of a cluster: a container of its name.
type node struct {
	name string
	// links are one per IP family, IPv4 first.
	links []link
}

// link is how a node and its Pods are reached in one IP family: by its address
// in Docker's network.
type link struct {
	address netip.Addr
	podCIDR netip.Prefix
}

// address is one of the node's addresses, which this machine and all clusters reach; IPv4 where there is one.
func (n node) address() string { return n.links[0].address.String() }

// attempts is how often a cluster is made: a busy machine may exceed kind's own
// bounds once.
const attempts = 2

func (c *Cluster) start(ctx context.Context, options Options) error {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		err := c.startOnce(ctx, options)
		if err == nil || attempt == attempts || ctx.Err() != nil {
			return err
		}
		c.tools.say("kind: cluster %s is made anew, because: %v", c.Name(), err)
		if err := c.remove(ctx); err != nil {
			return err
		}
	}
}

func (c *Cluster) startOnce(ctx context.Context, options Options) error {
	c.nodes = nil
	c.tools.say("kind: create cluster %s", c.Name())
	if err := c.create(ctx, options); err != nil {
		return err
	}
	var err error
	if c.config, err = clusters.LoadKubeconfig(c.Kubeconfig()); err != nil {
		return err
	}
	if err := c.findNodes(ctx); err != nil {
		return err
	}
	manifests := options.Manifests
	if !options.Fresh {
		manifests = append(clusters.MCSDefinitions(), manifests...)
	}
	if err := clusters.Apply(ctx, c.config, manifests...); err != nil {
		return err
	}
	if err := c.serveDNS(ctx, !options.Fresh); err != nil {
		return err
	}
	if err := c.giveZones(ctx, options); err != nil {
		return err
	}
	if len(options.Images) > 0 {
		c.tools.say("kind: load %s into %s", strings.Join(options.Images, " "), c.Name())
	}
	if err := c.LoadImages(ctx, options.Images...); err != nil {
		return err
	}
	c.tools.say("kind: cluster %s is ready", c.Name())
	return nil
}

func (c *Cluster) create(ctx context.Context, options Options) error {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	args := []string{"create", "cluster", "--name", c.Name(), "--kubeconfig", c.Kubeconfig(), "--config", "-", "--wait", "180s"}
	if options.NodeImage != "" {
		args = append(args, "--image", options.NodeImage)
	}
	_, err := c.tools.run(ctx, c.tools.kind, strings.NewReader(c.kindConfig(options)), args...)
	return err
}

// patches keep a busy machine from changing what Kubernetes itself does. There is one
// controller manager and one scheduler, which would restart if they renewed a lease too late. A
// node whose heartbeat is late would have all of its Pods marked as not ready.
// containerd would ask the process of each Pod every second what it uses, which nobody reads
// here: with 60 Pods that takes a third of a processor.
const patches = `containerdConfigPatches:
- |
  [plugins."io.containerd.cri.v1.runtime"]
    stats_collect_period = "1h"
kubeadmConfigPatches:
- |
  kind: ClusterConfiguration
  controllerManager:
    extraArgs:
    - {name: leader-elect, value: "false"}
    - {name: node-monitor-grace-period, value: 30m}
  scheduler:
    extraArgs:
    - {name: leader-elect, value: "false"}
`

func (c *Cluster) kindConfig(options Options) string {
	more := ""
	switch cidrs := c.network.PodCIDRs; {
	case len(cidrs) > 1:
		more += "  ipFamily: dual\n"
	case cidrs[0].Addr().Is6():
		more += "  ipFamily: ipv6\n"
	}
	if mode := options.ProxyModes[c.id]; mode != "" {
		more += "  kubeProxyMode: " + mode + "\n"
	}
	more += patches
	if c.registersZones(options) {
		more += proxyLogs
	}
	if options.PodSync > 0 {
		more += fmt.Sprintf("- |\n  kind: KubeletConfiguration\n  syncFrequency: %s\n", options.PodSync)
	}
	return fmt.Sprintf(`kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
networking:
  podSubnet: %s
  serviceSubnet: %s
%snodes:
%s`, join(c.network.PodCIDRs), join(c.network.ServiceCIDRs), more, c.nodesConfig(options))
}

// nodesConfig gives each node its region and, in nftables mode, its zone, with which it
// registers. A label that is set later makes kube-proxy write all its rules again,
// and in nftables mode, on kernel 6.18 with nft 1.0.6, its maps are empty after
// that: no Pod reaches a Service any more.
func (c *Cluster) nodesConfig(options Options) string {
	var out strings.Builder
	for i := range options.Workers + 1 {
		role, zone := "worker", ""
		if i == 0 {
			role = "control-plane"
		}
		if c.registersZones(options) {
			zone = fmt.Sprintf(", %s: %s", corev1.LabelTopologyZone, c.zone(i))
		}
		fmt.Fprintf(&out, "- role: %s\n  labels: {%s: %s%s}\n", role, corev1.LabelTopologyRegion, c.id, zone)
	}
	return out.String()
}

func (c *Cluster) registersZones(options Options) bool { return options.ProxyModes[c.id] == "nftables" }

// zone is that of a node: each has one of its own, <id>-1, <id>-2, ...
func (c *Cluster) zone(node int) string { return fmt.Sprintf("%s-%d", c.id, node+1) }

// giveZones has every kube-proxy know the zone of its node. One that starts can miss the zone
// that its node already has: it may read the node before its rules are notified of labels. It
// then ignores all hints. So nodes that can be labeled later are labeled once kube-proxy
// runs, because CoreDNS is reached through it; with the others, kube-proxy starts again until
// it has not missed the zone.
func (c *Cluster) giveZones(ctx context.Context, options Options) error {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return err
	}
	if c.registersZones(options) {
		return c.awaitZones(ctx, client)
	}
	for i, n := range c.nodes {
		patch := fmt.Appendf(nil, `{"metadata": {"labels": {%q: %q}}}`, corev1.LabelTopologyZone, c.zone(i))
		if _, err := client.CoreV1().Nodes().Patch(ctx, n.name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// proxyLogs has kube-proxy log that it learned a zone, which nothing else shows.
const proxyLogs = `- |
  kind: KubeProxyConfiguration
  logging: {verbosity: 4}
`

// learnedZone is in that line.
const learnedZone = "Updated proxier node topology labels"

// proxies selects the Pods of kube-proxy.
const proxies = "k8s-app=kube-proxy"

// withoutRules removes the rules of kube-proxy: one that starts again writes all of them, which
// leaves the maps empty of those that exist (see nodesConfig).
const withoutRules = "for family in ip ip6; do nft delete table $family kube-proxy 2>/dev/null || true; done\n"

// awaitZones waits until every kube-proxy has learned a zone, and starts all again if one has not in time.
func (c *Cluster) awaitZones(ctx context.Context, client kubernetes.Interface) error {
	pods := client.CoreV1().Pods(metav1.NamespaceSystem)
	for attempt := 1; ; attempt++ {
		var ignorant []string
		err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, zoneTimeout, true, func(ctx context.Context) (bool, error) {
			list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: proxies})
			if err != nil {
				return false, err
			}
			ignorant = nil
			for _, pod := range list.Items {
				lines, err := pods.GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
				if err != nil || pod.DeletionTimestamp != nil || !strings.Contains(string(lines), learnedZone) {
					ignorant = append(ignorant, pod.Name)
				}
			}
			return len(ignorant) == 0 && len(list.Items) == len(c.nodes), nil
		})
		if !wait.Interrupted(err) || ctx.Err() != nil {
			return err
		}
		if attempt == attemptsOfProxies {
			return fmt.Errorf("the Pods %s have not logged %q, so they may ignore the zones of nodes: %w", strings.Join(ignorant, ", "), learnedZone, err)
		}
		c.tools.say("kind: in cluster %s, kube-proxy starts again, because the Pods %s missed the zones of their nodes", c.Name(), strings.Join(ignorant, ", "))
		if err := c.onNodes(ctx, withoutRules); err != nil {
			return err
		}
		if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: proxies}); err != nil {
			return err
		}
	}
}

// join writes ranges as kind expects them.
func join(ranges []netip.Prefix) string {
	texts := make([]string, len(ranges))
	for i, r := range ranges {
		texts[i] = r.String()
	}
	return strings.Join(texts, ",")
}

// findNodes learns the addresses of the nodes.
func (c *Cluster) findNodes(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, nodesTimeout)
	defer cancel()
	var nodes []node
	var missing error
	err = wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		nodes, missing = nil, nil
		for _, n := range list.Items {
			links, err := linksOf(n, len(c.network.PodCIDRs))
			missing = errors.Join(missing, err)
			nodes = append(nodes, node{name: n.Name, links: links})
		}
		return missing == nil && len(nodes) > 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the addresses of the nodes: %w: %w", err, missing)
	}
	c.nodes = nodes // the control plane sorts first
	return nil
}

// linksOf reads Pod CIDR and address of a node for so many IP families, IPv4 first.
func linksOf(n corev1.Node, families int) ([]link, error) {
	links := make([]link, 0, families)
	for _, text := range n.Spec.PodCIDRs {
		cidr, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("node %s: spec.podCIDRs: %w", n.Name, err)
		}
		for _, a := range n.Status.Addresses {
			address, err := netip.ParseAddr(a.Address)
			if err == nil && a.Type == corev1.NodeInternalIP && address.Is4() == cidr.Addr().Is4() {
				links = append(links, link{address: address, podCIDR: cidr})
				break
			}
		}
	}
	if len(links) != families {
		return nil, fmt.Errorf("node %s has Pod CIDRs %v and addresses %v: expected one of each for %d IP families",
			n.Name, n.Spec.PodCIDRs, n.Status.Addresses, families)
	}
	slices.SortStableFunc(links, func(a, b link) int { return a.address.BitLen() - b.address.BitLen() })
	return links, nil
}
