// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
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
func readToken(kubeconfig []byte, peer Cluster) string {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return ""
	}
	context := config.Contexts[config.CurrentContext]
	if context == nil {
		return ""
	}
	cluster, user := config.Clusters[context.Cluster], config.AuthInfos[context.AuthInfo]
	if cluster == nil || user == nil {
		return ""
	}
	if cluster.Server != peer.Server || !bytes.Equal(cluster.CertificateAuthorityData, peer.CAData) {
		return ""
	}
	return user.Token
}

// freshEnough reports whether more than half of the token's lifetime is left.
// It reads the token without verifying it, which is the API server's to do.
func freshEnough(token string, now time.Time) bool {
	issued, expires, err := lifetime(token)
	if err != nil {
		return false
	}
	return expires.Sub(now) > expires.Sub(issued)/2
}

func lifetime(token string) (issued, expires time.Time, err error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return issued, expires, errors.New("the token is no JSON web token")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return issued, expires, fmt.Errorf("decode token: %w", err)
	}
	var claims struct {
		IssuedAt  int64 `json:"iat"`
		ExpiresAt int64 `json:"exp"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return issued, expires, fmt.Errorf("decode token: %w", err)
	}
	if claims.IssuedAt == 0 || claims.ExpiresAt <= claims.IssuedAt {
		return issued, expires, errors.New("the token does not say how long it is valid")
	}
	return time.Unix(claims.IssuedAt, 0), time.Unix(claims.ExpiresAt, 0), nil
}
