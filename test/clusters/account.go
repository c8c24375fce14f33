// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// accountTokenLife is longer than any test; the API server grants from 10 minutes on.
const accountTokenLife = 12 * time.Hour

// ServiceAccountKubeconfig writes a kubeconfig (mode 0600) that acts as a
// service account which exists already, so that a program run outside of the
// cluster has exactly the rights that its RBAC gives it inside. The file's
// default namespace is the account's.
func ServiceAccountKubeconfig(ctx context.Context, c Cluster, namespace, name, path string) error {
	config := c.RESTConfig()
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connect to cluster %s: %w", c.ID(), err)
	}
	seconds := int64(accountTokenLife.Seconds())
	token, err := typed.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("request a token of service account %s/%s in cluster %s: %w", namespace, name, c.ID(), err)
	}
	user := &clientcmdapi.AuthInfo{Token: token.Status.Token}
	return WriteKubeconfig(path, c.ID(), config.Host, config.CAData, namespace, user)
}

// WriteKubeconfig writes a kubeconfig (mode 0600) with one cluster, one user
// and one context, all inlined.
func WriteKubeconfig(path, id, server string, ca []byte, namespace string, user *clientcmdapi.AuthInfo) error {
	config := clientcmdapi.NewConfig()
	config.Clusters[id] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[id] = user
	config.Contexts[id] = &clientcmdapi.Context{Cluster: id, AuthInfo: id, Namespace: namespace}
	config.CurrentContext = id
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", path, err)
	}
	return nil
}

// LoadKubeconfig reads a kubeconfig for tests: client-side rate limits are off,
// so that what is measured is the API server.
func LoadKubeconfig(path string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", path, err)
	}
	config.QPS = -1
	return config, nil
}
