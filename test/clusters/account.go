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

// MergedKubeconfig writes a kubeconfig (mode 0600) in which the id of each cluster
// is a context of its administrator, at the address that other clusters use too.
// The first is the current one.
func MergedKubeconfig[C Cluster](path string, all ...C) error {
	merged := clientcmdapi.NewConfig()
	for _, c := range all {
		from, err := clientcmd.LoadFromFile(c.Kubeconfig())
		if err != nil {
			return fmt.Errorf("read the kubeconfig of cluster %s: %w", c.ID(), err)
		}
		if err := merge(merged, c.ID(), c.PeerServer(), from); err != nil {
			return err
		}
	}
	if err := clientcmd.WriteToFile(*merged, path); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", path, err)
	}
	return nil
}

// merge adds the current context of from to all, under a name and with a server of its own.
func merge(all *clientcmdapi.Config, name, server string, from *clientcmdapi.Config) error {
	current := from.Contexts[from.CurrentContext]
	if current == nil || from.Clusters[current.Cluster] == nil || from.AuthInfos[current.AuthInfo] == nil {
		return fmt.Errorf("the kubeconfig of cluster %s has no cluster and user for its current context %q", name, from.CurrentContext)
	}
	all.Clusters[name], all.AuthInfos[name] = from.Clusters[current.Cluster].DeepCopy(), from.AuthInfos[current.AuthInfo]
	all.Clusters[name].Server = server
	all.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	if all.CurrentContext == "" {
		all.CurrentContext = name
	}
	return nil
}
