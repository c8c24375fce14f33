// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/sync/join/corefile"
	"github.com/comity-mcs/comity/test/clusters"
)

const (
	// dnsNodePort is where CoreDNS answers on every node, for DNSAddress.
	dnsNodePort = 30053
	// dnsTimeout bounds the start and the restart of CoreDNS, whose image every node has.
	dnsTimeout = 150 * time.Second
	// firstTimeout is the part of it for the start.
	firstTimeout = time.Minute
	// explainTimeout bounds the look at what went wrong.
	explainTimeout = 15 * time.Second
)

// clusterSetRole lets CoreDNS read ServiceImports.
const clusterSetRole = `apiVersion: rbac.authorization.k8s.io/v1
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
`

// dnsService lets this machine ask CoreDNS.
const dnsService = `apiVersion: v1
kind: Service
metadata: {name: comity-test-dns, namespace: kube-system}
spec:
  type: NodePort
  selector: {k8s-app: kube-dns}
  ports:
  - {name: dns, protocol: UDP, port: 53, targetPort: 53, nodePort: 30053}
  - {name: dns-tcp, protocol: TCP, port: 53, targetPort: 53, nodePort: 30053}
`

// serveDNS lets this machine ask the cluster's CoreDNS and, if clusterSet says
// so, makes it answer for clusterset.local.
func (c *Cluster) serveDNS(ctx context.Context, clusterSet bool) error {
	ctx, cancel := context.WithTimeout(ctx, dnsTimeout)
	defer cancel()
	if err := clusters.Apply(ctx, c.config, []byte(dnsService)); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return err
	}
	if clusterSet {
		if err := c.serveClusterSet(ctx, client); err != nil {
			return err
		}
	}
	deployments := client.AppsV1().Deployments("kube-system")
	// A Pod that starts before kube-proxy has written its first rules can be left with connections that lead nowhere.
	// Where that happened the restart mends it, so it counts for nothing here how the first ones fare.
	first, cancelFirst := context.WithTimeout(ctx, firstTimeout)
	_, _ = available(first, deployments)
	cancelFirst()
	// One replica, so that two answers never differ; the annotation restarts it at once.
	patch := fmt.Sprintf(`{"spec": {"replicas": 1, "strategy": {"type": "Recreate", "rollingUpdate": null},
		"template": {"metadata": {"annotations": {"comity-test/restarted-at": %q}}}}}`, time.Now().Format(time.RFC3339))
	if _, err := deployments.Patch(ctx, "coredns", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("restart CoreDNS: %w", err)
	}
	status, err := available(ctx, deployments)
	if err != nil {
		return fmt.Errorf("CoreDNS is not ready after its restart (%d of %d replicas): %w\n%s",
			status.AvailableReplicas, status.Replicas, err, explain(ctx, client))
	}
	return nil
}

// serveClusterSet adds clusterset.local to CoreDNS's configuration, as an
// administrator does who installs an MCS implementation.
func (c *Cluster) serveClusterSet(ctx context.Context, client kubernetes.Interface) error {
	if err := clusters.Apply(ctx, c.config, []byte(clusterSetRole)); err != nil {
		return err
	}
	configMaps := client.CoreV1().ConfigMaps("kube-system")
	config, err := configMaps.Get(ctx, "coredns", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read CoreDNS's configuration: %w", err)
	}
	before := config.Data["Corefile"]
	if config.Data["Corefile"], err = corefile.Enable(before); err != nil {
		return fmt.Errorf("CoreDNS's configuration: %w\n%s", err, before)
	}
	if _, err := configMaps.Update(ctx, config, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("change CoreDNS's configuration: %w", err)
	}
	return nil
}

// available waits until CoreDNS runs as its Deployment says.
func available(ctx context.Context, deployments appsclient.DeploymentInterface) (appsv1.DeploymentStatus, error) {
	var status appsv1.DeploymentStatus
	err := wait.PollUntilContextCancel(ctx, 250*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		d, err := deployments.Get(ctx, "coredns", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		status = d.Status
		want := ptr.Deref(d.Spec.Replicas, 1)
		return status.ObservedGeneration >= d.Generation && status.UpdatedReplicas == want && status.AvailableReplicas == want && status.Replicas == want, nil
	})
	return status, err
}

// explain describes the state of CoreDNS's Pods, and of kube-proxy's, by
// which they reach the API server. The cluster is deleted before anybody could look.
func explain(ctx context.Context, client kubernetes.Interface) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), explainTimeout)
	defer cancel()
	var out strings.Builder
	pods, err := client.CoreV1().Pods("kube-system").List(ctx, metav1.ListOptions{LabelSelector: "k8s-app in (kube-dns, kube-proxy)"})
	if err != nil {
		return fmt.Sprintf("its Pods cannot be listed: %v", err)
	}
	for _, pod := range pods.Items {
		fmt.Fprintf(&out, "Pod %s is %s, address %s\n", pod.Name, pod.Status.Phase, pod.Status.PodIP)
		for _, container := range pod.Status.ContainerStatuses {
			fmt.Fprintf(&out, "  container %s: ready %v, restarts %d, %s\n", container.Name, container.Ready, container.RestartCount, container.State.String())
		}
		log, err := client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{TailLines: ptr.To[int64](15)}).DoRaw(ctx)
		if err != nil {
			log = []byte(err.Error())
		}
		fmt.Fprintf(&out, "  its log:\n%s\n", log)
	}
	events, err := client.CoreV1().Events("kube-system").List(ctx, metav1.ListOptions{FieldSelector: "type=Warning"})
	if err != nil {
		return out.String()
	}
	for _, event := range events.Items {
		fmt.Fprintf(&out, "event of %s %s, %d times: %s: %s\n", event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Count, event.Reason, event.Message)
	}
	return out.String()
}
