// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// UnreadyAnnotation with the value "true" makes a running Pod unready; any other value, or none, makes it ready again.
const UnreadyAnnotation = "clusters.comity.dev/unready"

//go:embed kwok.yaml
var kwokStages string

// coreDNSAccess is what CoreDNS may read, as it may in a cluster that follows the MCS API.
const coreDNSAccess = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: system:coredns}
rules:
- {apiGroups: [""], resources: [services, pods, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
- {apiGroups: [multicluster.x-k8s.io], resources: [serviceimports], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: system:coredns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:coredns}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: system:coredns}
`

// usableTimeout bounds the wait for what controllers make of a fresh cluster.
const usableTimeout = time.Minute

// createNodes registers the nodes as kubelets would. kwok keeps them alive.
func (c *Cluster) createNodes(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return err
	}
	for i := 1; i <= c.options.Nodes; i++ {
		node, err := client.CoreV1().Nodes().Create(ctx, c.node(i), metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create node %d: %w", i, err)
		}
		capacity := corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("1000"),
			corev1.ResourceMemory: resource.MustParse("1Ti"),
			corev1.ResourcePods:   resource.MustParse("10000"),
		}
		node.Status.Capacity, node.Status.Allocatable = capacity, capacity
		node.Status.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: c.hostAddress(10 + i)},
			{Type: corev1.NodeHostName, Address: node.Name},
		}
		node.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}}
		if _, err := client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("set the status of node %s: %w", node.Name, err)
		}
	}
	return nil
}

// node is the i-th, counted from 1, with the i-th /24 (and /64) of the cluster's Pods.
func (c *Cluster) node(i int) *corev1.Node {
	name := fmt.Sprintf("%s-node-%d", c.id, i)
	var cidrs []string
	for _, cidr := range c.network.PodCIDRs {
		bytes := cidr.Addr().AsSlice()
		if cidr.Addr().Is4() {
			bytes[2] = byte(i)
			cidrs = append(cidrs, netip.PrefixFrom(netip.AddrFrom4([4]byte(bytes)), 24).String())
		} else {
			bytes[7] = byte(i)
			cidrs = append(cidrs, netip.PrefixFrom(netip.AddrFrom16([16]byte(bytes)), 64).String())
		}
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			corev1.LabelTopologyRegion: c.id, corev1.LabelTopologyZone: fmt.Sprintf("%s-%d", c.id, i),
		}},
		Spec: corev1.NodeSpec{PodCIDR: cidrs[0], PodCIDRs: cidrs},
	}
}

// awaitUsable waits until a Pod could be created and run: its account is
// there, and nodes take it.
func (c *Cluster) awaitUsable(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, usableTimeout)
	defer cancel()
	var missing error
	err = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		for _, p := range c.components {
			if !p.Running() {
				return false, fmt.Errorf("%s has ended", p.Name())
			}
		}
		missing = c.unusable(ctx, client)
		return missing == nil, nil
	})
	if err != nil {
		return fmt.Errorf("the cluster is not usable: %w; end of the log of %s:\n%s\nof %s:\n%s", errors.Join(err, missing),
			ControllerManager, c.component(ControllerManager).LogTail(10), Kwok, c.component(Kwok).LogTail(10))
	}
	return nil
}

// unusable says what a Pod would still miss.
func (c *Cluster) unusable(ctx context.Context, client kubernetes.Interface) error {
	if _, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{}); err != nil {
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("%s has not made service account default/default yet", ControllerManager)
		}
		return err
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, node := range nodes.Items {
		if len(node.Spec.Taints) > 0 {
			return fmt.Errorf("node %s still has the taint %s", node.Name, node.Spec.Taints[0].Key)
		}
		_, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, node.Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("%s does not hold node %s yet: %w", Kwok, node.Name, err)
		}
	}
	return nil
}
