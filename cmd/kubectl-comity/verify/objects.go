// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
)

const (
	// namespacePrefix is how the temporary namespaces begin.
	namespacePrefix = "comity-verify-"
	// port is where the Pod listens; the Service listens on 80.
	port = 8080
	// podName is the one Pod in each namespace: it serves, and it fetches.
	podName = "verify"
	// nobody is the user of Comity's image.
	nobody = 65532
)

var podLabels = map[string]string{"app.kubernetes.io/name": "comity-verify"}

func newNamespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		"app.kubernetes.io/managed-by":       "kubectl-comity",
		"pod-security.kubernetes.io/enforce": "restricted",
	}}}
}

// serviceName is that of the export of one cluster: each has its own, so that
// an answer says whose it is.
func serviceName(index int) string { return fmt.Sprintf("verify-%d", index+1) }

// answerOf is what the Pod of a cluster answers.
func answerOf(id, namespace string) string { return id + " in " + namespace }

// newPod runs the agent's image where the agent runs, within Kubernetes'
// restricted profile and without access to the API.
func newPod(namespace, answer string, like agent.Agent) *corev1.Pod {
	container := like.Container()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: podName, Labels: podLabels},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			ImagePullSecrets:              like.Pod.Spec.ImagePullSecrets,
			NodeSelector:                  like.Pod.Spec.NodeSelector,
			Tolerations:                   like.Pod.Spec.Tolerations,
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](nobody), RunAsGroup: ptr.To[int64](nobody),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "verify", Image: container.Image, ImagePullPolicy: container.ImagePullPolicy, Command: container.Command,
				Args:  []string{"serve", "--port", fmt.Sprint(port), "--text", answer},
				Ports: []corev1.ContainerPort{{ContainerPort: port}},
				ReadinessProbe: &corev1.Probe{
					ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(port)}},
					PeriodSeconds: 1,
				},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
					Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
				},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}

// newService has both IP families where the cluster has both.
func newService(namespace, name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{
			Selector: podLabels, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack),
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(port)}},
		},
	}
}

func newExport(namespace, name string) client.Object {
	return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}
