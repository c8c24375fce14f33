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
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/cmd/comity/probe"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

// Probe runs `comity probe` in the Pod of from, which has Comity's image, as kubectl exec
// does. An error carries what it wrote to standard error.
func Probe(ctx context.Context, target *command.Target, from Agent, request probe.Request) (response probe.Response, err error) {
	input, err := json.Marshal(request)
	if err != nil {
		return response, fmt.Errorf("encode the probe's request: %w", err)
	}
	container, pod := from.Container(), client.ObjectKeyFromObject(from.Pod)
	argv := []string{"/comity"} // in the image, which has no shell
	if len(container.Command) > 0 {
		argv = container.Command[:1:1]
	}
	core, err := corev1client.NewForConfig(target.REST)
	if err != nil {
		return response, target.Errorf("connect to Pod %s: %w", pod, err)
	}
	// By WebSocket, which every supported Kubernetes serves.
	executor, err := remotecommand.NewWebSocketExecutor(target.REST, http.MethodGet, core.RESTClient().Get().
		Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: container.Name, Command: append(argv, "probe"), Stdin: true, Stdout: true, Stderr: true,
		}, clientgoscheme.ParameterCodec).URL().String())
	if err != nil {
		return response, target.Errorf("connect to Pod %s: %w", pod, err)
	}
	var stdout, stderr bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: bytes.NewReader(input), Stdout: &stdout, Stderr: &stderr}); err != nil {
		return response, target.Errorf("run comity probe in Pod %s: %w: %s", pod, err, strings.TrimSpace(stderr.String()))
	}
	if err := json.Unmarshal(stdout.Bytes(), &response); err != nil {
		return response, target.Errorf("read the answer of comity probe in Pod %s: %w", pod, err)
	}
	asked := len(request.Servers) + len(request.URLs) + len(request.Names) + len(request.Addresses)
	if got := len(response.Servers) + len(response.URLs) + len(response.Names) + len(response.Addresses); got != asked {
		return response, target.Errorf("comity probe answered for %d of %d targets; upgrade Comity there to the version of this plugin (%s)", got, asked, command.Version)
	}
	return response, nil
}
