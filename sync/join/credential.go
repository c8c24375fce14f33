// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"bytes"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

// writeKubeconfig is the kubeconfig by which user reaches peer: self-contained,
// with no plugin, provider or file path, which the agent would refuse.
func writeKubeconfig(user string, peer Cluster, token string) ([]byte, error) {
	name := string(peer.ID)
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: peer.Server, CertificateAuthorityData: peer.CAData}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user, Namespace: peer.Namespace}
	config.CurrentContext = name
	return clientcmd.Write(*config)
}

// readToken is the token in a kubeconfig that writeKubeconfig could have
// written for peer as it is now; empty if server, authority or form differ.
func readToken(data []byte, peer Cluster) string {
	config, fault := kubeconfig.Sanitize(data)
	if fault != nil || config.Host != peer.Server || !bytes.Equal(config.CAData, peer.CAData) {
		return ""
	}
	return config.BearerToken
}

// freshEnough reports whether more than half of the token's lifetime is left.
func freshEnough(token string, now time.Time) bool {
	claims, ok := kubeconfig.ReadToken(token)
	return ok && 2*(claims.Expires-now.Unix()) > claims.Expires-claims.Issued
}
