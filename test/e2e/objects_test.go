// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// clientPod sends the requests. It has a fixed name, so that it can be asked to.
const clientPod = `apiVersion: v1
kind: Pod
metadata: {name: client, namespace: default, labels: {app: client}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: client, image: "` + agnhost + `", imagePullPolicy: IfNotPresent, args: [netexec, --http-port=8080]}
`

// servicePort is that of every Service that the suite makes; Pods listen on podPort.
const (
	servicePort = 80
	podPort     = 8080
)

func newNamespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// newServer is a Deployment whose Pods, with label app=<name>, answer with their name.
func newServer(namespace, name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](0),
					Containers: []corev1.Container{{
						Name: "server", Image: agnhost, ImagePullPolicy: corev1.PullIfNotPresent,
						Args: []string{"netexec", "--http-port=8080"},
						// A container that runs does not listen yet, and must not be an endpoint until it does. From then on
						// it stays one: a kubelet without time for its probes would change slices that a spec compares.
						StartupProbe: &corev1.Probe{
							ProbeHandler:     corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/hostname", Port: intstr.FromInt32(podPort)}},
							PeriodSeconds:    1,
							FailureThreshold: int32(soon / time.Second),
						},
					}},
				},
			},
		},
	}
}

// newService is a Service of the Pods of newServer of the same name, with an
// address in each IP family that the cluster has.
func newService(namespace, name string, kind corev1.ServiceType) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{
			Type:           kind,
			Selector:       map[string]string{"app": name},
			Ports:          []corev1.ServicePort{{Port: servicePort, TargetPort: intstr.FromInt32(podPort)}},
			IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack),
		},
	}
}

func newExport(namespace, name string) *mcsv1beta1.ServiceExport {
	return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// replicas is a patch of what newServer makes.
func replicas(count int) string { return fmt.Sprintf(`{"spec": {"replicas": %d}}`, count) }

// gate is a condition without which a Pod is not ready.
const gate = "comity.dev/e2e"

// open sets the gate of a Pod; the kubelet then says whether the Pod is ready.
func (m *member) open(ctx context.Context, namespace, name string, ready bool) {
	GinkgoHelper()
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	patch := fmt.Sprintf(`{"status": {"conditions": [{"type": %q, "status": %q}]}}`, gate, status)
	_, err := m.typed.CoreV1().Pods(namespace).Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	Expect(err).NotTo(HaveOccurred())
	step("in %s: Pod %s has the condition %s=%s", m.ID(), name, gate, status)
}
