// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/comity-mcs/comity/test/clusters"
)

const (
	// dnsNodePort is where CoreDNS answers on every node, for DNSAddress.
	dnsNodePort = 30053
	// dnsTimeout bounds the restart of CoreDNS, whose image every node has.
	dnsTimeout = 2 * time.Minute
)

// dnsManifests let CoreDNS read ServiceImports, and this machine ask CoreDNS.
const dnsManifests = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: comity-test-coredns}
rules:
- {apiGroups: [multicluster.x-k8s.io], resources: [serviceimports], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: comity-test-coredns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: comity-test-coredns}
subjects:
- {kind: ServiceAccount, name: coredns, namespace: kube-system}
---
apiVersion: v1
kind: Service
metadata: {name: comity-test-dns, namespace: kube-system}
spec:
  type: NodePort
  selector: {k8s-app: kube-dns}
  ports:
  - {name: dns, protocol: UDP, port: 53, targetPort: 53, nodePort: 30053}
  - {name: dns-tcp, protocol: TCP, port: 53, targetPort: 53, nodePort: 30053}
`

// serveClusterSet makes the cluster's CoreDNS answer for clusterset.local, as
// an administrator does who installs an MCS implementation.
func (c *Cluster) serveClusterSet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dnsTimeout)
	defer cancel()
	if err := clusters.Apply(ctx, c.config, []byte(dnsManifests)); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return err
	}
	configMaps, deployments := client.CoreV1().ConfigMaps("kube-system"), client.AppsV1().Deployments("kube-system")
	config, err := configMaps.Get(ctx, "coredns", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read CoreDNS's configuration: %w", err)
	}
	if config.Data["Corefile"], err = withClusterSet(config.Data["Corefile"]); err != nil {
		return err
	}
	if _, err := configMaps.Update(ctx, config, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("change CoreDNS's configuration: %w", err)
	}
	// One replica, so that two answers never differ; the annotation restarts it at once.
	patch := fmt.Sprintf(`{"spec": {"replicas": 1, "strategy": {"type": "Recreate", "rollingUpdate": null},
		"template": {"metadata": {"annotations": {"comity-test/restarted-at": %q}}}}}`, time.Now().Format(time.RFC3339))
	if _, err := deployments.Patch(ctx, "coredns", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("restart CoreDNS: %w", err)
	}
	var status appsv1.DeploymentStatus
	err = wait.PollUntilContextCancel(ctx, 250*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		d, err := deployments.Get(ctx, "coredns", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		status = d.Status
		return status.ObservedGeneration >= d.Generation && status.UpdatedReplicas == 1 && status.AvailableReplicas == 1 && status.Replicas == 1, nil
	})
	if err != nil {
		return fmt.Errorf("CoreDNS is not ready after its restart (%d of %d replicas): %w; see its Pod's log in kube-system",
			status.AvailableReplicas, status.Replicas, err)
	}
	return nil
}

// withClusterSet adds the multicluster zone to the Corefile that kubeadm writes, and keeps it out of the cache.
func withClusterSet(corefile string) (string, error) {
	const zone = "kubernetes cluster.local "
	if strings.Contains(corefile, "multicluster clusterset.local") {
		return corefile, nil
	}
	before, after, found := strings.Cut(corefile, zone)
	head, body, opened := strings.Cut(after, "{\n")
	if !found || !opened {
		return "", fmt.Errorf("CoreDNS's Corefile has no block %q to add clusterset.local to:\n%s", zone+"... {", corefile)
	}
	changed := before + zone + "clusterset.local " + head + "{\n        multicluster clusterset.local\n" + body
	for _, what := range []string{"success", "denial"} {
		line := "disable " + what + " cluster.local\n"
		changed = strings.Replace(changed, line, line+"       disable "+what+" clusterset.local\n", 1)
	}
	return changed, nil
}
