// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"fmt"
	"os"
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
)

// node is one machine of a cluster: a container of its name.
type node struct {
	name, address, podCIDR string
}

// attempts is how often a cluster is made. Now and then, on a busy machine, one
// comes up whose Pods do not reach its API server, and stays so.
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
	if err := c.labelNodes(ctx); err != nil {
		return err
	}
	if err := clusters.Apply(ctx, c.config, append(clusters.MCSDefinitions(), options.Manifests...)...); err != nil {
		return err
	}
	if err := c.serveClusterSet(ctx); err != nil {
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
	_, err := c.tools.run(ctx, c.tools.kind, strings.NewReader(c.kindConfig(options.Workers, options.ProxyModes[c.id])), args...)
	return err
}

func (c *Cluster) kindConfig(workers int, proxyMode string) string {
	proxy := ""
	if proxyMode != "" {
		proxy = "  kubeProxyMode: " + proxyMode + "\n"
	}
	return fmt.Sprintf(`kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
networking:
  podSubnet: %s
  serviceSubnet: %s
%snodes:
- role: control-plane
`, c.network.PodCIDRs[0], c.network.ServiceCIDRs[0], proxy) + strings.Repeat("- role: worker\n", workers)
}

// labelNodes gives each node a zone of its own, <id>-1, <id>-2, ..., and learns their addresses.
func (c *Cluster) labelNodes(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, nodesTimeout)
	defer cancel()
	var list *corev1.NodeList
	var missing string
	err = wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if list, err = client.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
			return false, err
		}
		missing = ""
		for _, n := range list.Items {
			if n.Spec.PodCIDR == "" || internalAddress(n) == "" {
				missing = n.Name
			}
		}
		return missing == "" && len(list.Items) > 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait for node %s to get a Pod CIDR and an address: %w", missing, err)
	}
	for i, n := range list.Items { // the control plane sorts first
		patch := fmt.Sprintf(`{"metadata": {"labels": {%q: %q, %q: "%s-%d"}}}`,
			corev1.LabelTopologyRegion, c.id, corev1.LabelTopologyZone, c.id, i+1)
		if _, err := client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("label node %s: %w", n.Name, err)
		}
		c.nodes = append(c.nodes, node{name: n.Name, address: internalAddress(n), podCIDR: n.Spec.PodCIDR})
	}
	return nil
}

// internalAddress is the node's IPv4 address in Docker's network.
func internalAddress(n corev1.Node) string {
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP && !strings.Contains(a.Address, ":") {
			return a.Address
		}
	}
	return ""
}
