// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

const (
	// metricsReader selects the account as which the metrics are read.
	metricsReader = "app.kubernetes.io/name=comity,app.kubernetes.io/component=metrics-reader"
	// metricsTokenSeconds is the shortest lifetime that an API server grants.
	metricsTokenSeconds = 600
)

// podMetrics reads the metrics of the leader through the API server, which
// works from wherever kubectl does.
func podMetrics(ctx context.Context, target *command.Target, in agent.Agent) (string, error) {
	port := int32(0)
	for _, p := range in.Container.Ports {
		if p.Name == "metrics" {
			port = p.ContainerPort
		}
	}
	if port == 0 {
		return "", target.Errorf("Pod %s/%s serves no metrics; expected a container port named metrics", in.Namespace, in.Pod)
	}
	scheme, token := "http", ""
	// Agents of versions without the flag serve plain HTTP.
	if slices.Contains(in.Container.Args, "--metrics-secure=true") {
		var err error
		if token, err = metricsToken(ctx, target, in); err != nil {
			return "", err
		}
		scheme = "https"
	}
	address, err := agent.Forward(ctx, target, in.Namespace, in.Pod, int(port))
	if err != nil {
		return "", err
	}
	text, err := readMetrics(ctx, scheme+"://"+address+"/metrics", token)
	if err != nil {
		return "", target.Errorf("read the metrics of Pod %s/%s: %w", in.Namespace, in.Pod, err)
	}
	return text, nil
}

// metricsToken is a short-lived token of the account that may read the metrics and
// nothing else. A token of the user would be worth more than the metrics to whoever
// serves them.
func metricsToken(ctx context.Context, target *command.Target, in agent.Agent) (string, error) {
	accounts := target.Clientset.CoreV1().ServiceAccounts(in.Namespace)
	found, err := accounts.List(ctx, metav1.ListOptions{LabelSelector: metricsReader})
	if err != nil {
		return "", target.Errorf("find the account that reads the metrics: %w", err)
	}
	if len(found.Items) == 0 {
		return "", target.Errorf("namespace %s has no ServiceAccount labeled %s; expected that of the chart or of config/rbac", in.Namespace, metricsReader)
	}
	account := found.Items[0].Name
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](metricsTokenSeconds)}}
	answer, err := accounts.CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", target.Errorf("ask for a token of ServiceAccount %s/%s, which reads the metrics: %w", in.Namespace, account, err)
	}
	return answer.Status.Token, nil
}

// readMetrics gets url, with a token unless it is empty.
func readMetrics(ctx context.Context, url, token string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	request.Close = true // The way there ends with ctx.
	// The API server leads to the Pod, and the certificate has another name than the local address.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}} //nolint:gosec // see above
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s", response.Status)
	}
	text, err := io.ReadAll(response.Body)
	return string(text), err
}
