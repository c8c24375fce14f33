// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/cmd/comity/probe"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

// Probe runs `comity probe` in the Pod of from, which has Comity's image, as kubectl exec
// does. An error carries what it wrote to standard error.
func Probe(ctx context.Context, target *command.Target, from Agent, request probe.Request) (results []probe.Result, err error) {
	input, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("encode the probe's request: %w", err)
	}
	container, pod := from.Container(), client.ObjectKeyFromObject(from.Pod)
	argv := []string{"/comity"} // in the image, which has no shell
	if len(container.Command) > 0 {
		argv = container.Command[:1:1]
	}
	core, err := corev1client.NewForConfig(target.REST)
	if err != nil {
		return nil, target.Errorf("connect to Pod %s: %w", pod, err)
	}
	// By WebSocket, which every supported Kubernetes serves.
	executor, err := remotecommand.NewWebSocketExecutor(target.REST, http.MethodGet, core.RESTClient().Get().
		Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: container.Name, Command: append(argv, "probe"), Stdin: true, Stdout: true, Stderr: true,
		}, clientgoscheme.ParameterCodec).URL().String())
	if err != nil {
		return nil, target.Errorf("connect to Pod %s: %w", pod, err)
	}
	var stdout, stderr bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: bytes.NewReader(input), Stdout: &stdout, Stderr: &stderr}); err != nil {
		return nil, target.Errorf("run comity probe in Pod %s: %w: %s", pod, err, strings.TrimSpace(stderr.String()))
	}
	if err := json.Unmarshal(stdout.Bytes(), &results); err != nil || len(results) != len(request.Targets) {
		return nil, target.Errorf("comity probe answered for %d of %d targets: %.200q; upgrade Comity there to the version of this plugin (%s)",
			len(results), len(request.Targets), stdout.String(), command.Version)
	}
	return results, nil
}

const (
	// ServePort is where a Pod of NewPod listens.
	ServePort = 8080
	// nobody is the user of Comity's image.
	nobody = 65532
)

// NewPod runs the agent's image where the agent runs, within Kubernetes' restricted
// profile and without access to the API. It answers every request with answer, and can
// run Probe. The leader's Pod must be known.
func (a Agent) NewPod(namespace, name string, labels map[string]string, answer string) *corev1.Pod {
	container := a.Container()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			ImagePullSecrets:              a.Pod.Spec.ImagePullSecrets,
			NodeSelector:                  a.Pod.Spec.NodeSelector,
			Tolerations:                   a.Pod.Spec.Tolerations,
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](nobody), RunAsGroup: ptr.To[int64](nobody),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: name, Image: container.Image, ImagePullPolicy: container.ImagePullPolicy, Command: container.Command,
				Args:  []string{"serve", "--port", fmt.Sprint(ServePort), "--text", answer},
				Ports: []corev1.ContainerPort{{ContainerPort: ServePort}},
				ReadinessProbe: &corev1.Probe{
					ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(ServePort)}},
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

// AwaitPod waits until a Pod is ready, and says otherwise what keeps it.
func AwaitPod(ctx context.Context, target *command.Target, pod *corev1.Pod) error {
	return command.Await(ctx, func(ctx context.Context) error {
		var now corev1.Pod
		if err := target.Get(ctx, pod.Namespace, pod.Name, &now); err != nil {
			return err
		}
		why := "phase " + string(now.Status.Phase)
		for _, c := range now.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return nil
			}
			if c.Status == corev1.ConditionFalse && c.Message != "" {
				why = c.Message
			}
		}
		for _, c := range now.Status.ContainerStatuses {
			if c.State.Waiting != nil {
				why = c.State.Waiting.Reason + ": " + c.State.Waiting.Message
			}
		}
		return target.Errorf("Pod %s/%s: it is not ready: %s", pod.Namespace, pod.Name, why)
	})
}
