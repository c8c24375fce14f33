// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig reads the kubeconfig of a peer or a hub, and the token in it.
//
// It takes bytes; it gives a client configuration that runs no program, reads no
// file and verifies its server, or the field for which it is refused. It also reads
// and replaces the token. It guards a secret: no error holds a value from the
// kubeconfig. It follows from CVE-2022-24817 (kubeconfig exec).
package kubeconfig

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// SecretKey is the key of a Secret that holds a kubeconfig.
const SecretKey = "kubeconfig"

const rejoin = "write the Secret again with kubectl comity join"

// refuse says which field of a kubeconfig is refused, what was expected, and what to do. It
// never holds a value from the kubeconfig, which may be a credential.
func refuse(field, expected, remedy string) error {
	return fmt.Errorf("%s: expected %s; remedy: %s", field, expected, remedy)
}

// accepted is all that a kubeconfig may say. It has no exec plugin and no auth provider, which
// run programs, no path, which reads a file of this Pod, no password, proxy or impersonation,
// and no way not to verify the server.
type accepted struct {
	APIVersion     string   `json:"apiVersion"`
	Kind           string   `json:"kind"`
	Preferences    struct{} `json:"preferences"`
	CurrentContext string   `json:"current-context"`
	Clusters       []struct {
		Name    string `json:"name"`
		Cluster struct {
			Server        string `json:"server"`
			TLSServerName string `json:"tls-server-name"`
			CAData        []byte `json:"certificate-authority-data"`
		} `json:"cluster"`
	} `json:"clusters"`
	Contexts []struct {
		Name    string `json:"name"`
		Context struct {
			Cluster   string `json:"cluster"`
			User      string `json:"user"`
			Namespace string `json:"namespace"`
		} `json:"context"`
	} `json:"contexts"`
	Users []struct {
		Name string `json:"name"`
		User struct {
			Token    string `json:"token"`
			CertData []byte `json:"client-certificate-data"`
			KeyData  []byte `json:"client-key-data"`
		} `json:"user"`
	} `json:"users"`
}

// Sanitize turns the kubeconfig in the Secret of a Peer into a client configuration,
// or says why not. A kubeconfig is code as well as data (CVE-2022-24817), so whatever is not
// known to be harmless is refused.
func Sanitize(data []byte) (*rest.Config, error) {
	// The decoders' errors quote what they could not read, so they are not passed on.
	unreadable := refuse("kubeconfig", "YAML of apiVersion v1, kind Config, but it is empty or cannot be read as that", rejoin)
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, unreadable
	}
	var c accepted
	unknown, err := json.UnmarshalStrict(text, &c)
	if err != nil || c.APIVersion != "v1" || c.Kind != "Config" {
		return nil, unreadable
	}
	if len(unknown) > 0 { // such an error has the path of a field, and no value
		return nil, refuse(unknown[0].Error(), "inline data only: the server and the certificates that verify it, and a token or a client certificate with its key",
			"remove it, or "+rejoin)
	}
	if len(c.Clusters) != 1 || len(c.Users) != 1 || len(c.Contexts) != 1 {
		return nil, refuse("clusters, users and contexts", "exactly one entry in each", "remove all but the peer's")
	}
	cluster, user, use := c.Clusters[0].Cluster, c.Users[0].User, c.Contexts[0]
	isCertified := len(user.CertData) > 0 || len(user.KeyData) > 0
	_, errPair := tls.X509KeyPair(user.CertData, user.KeyData)
	for _, check := range []struct {
		isBad                   bool
		field, expected, remedy string
	}{
		{use.Context.Cluster != c.Clusters[0].Name || use.Context.User != c.Users[0].Name || c.CurrentContext != "" && c.CurrentContext != use.Name,
			"contexts", "the current context, with the names of the cluster and of the user", rejoin},
		{!IsServer(cluster.Server), "server", "an https URL of a host and nothing secret, such as https://10.0.0.1:6443", "give the peer's API server as this cluster reaches it"},
		{len(cluster.CAData) > 0 && !x509.NewCertPool().AppendCertsFromPEM(cluster.CAData), "certificate-authority-data", "base64 of PEM certificates", rejoin},
		{user.Token == "" && !isCertified, "user", "a token or a client certificate, found neither", rejoin},
		{strings.ContainsFunc(user.Token, func(r rune) bool { return r <= ' ' || r > '~' }), "token", "a token without white space or control characters", rejoin},
		{isCertified && errPair != nil, "client-certificate-data", "a PEM certificate and, in client-key-data, its key", rejoin},
	} {
		if check.isBad {
			return nil, refuse(check.field, check.expected, check.remedy)
		}
	}
	return &rest.Config{
		Host: cluster.Server, BearerToken: user.Token,
		TLSClientConfig: rest.TLSClientConfig{ServerName: cluster.TLSServerName, CAData: cluster.CAData, CertData: user.CertData, KeyData: user.KeyData},
	}, nil
}

// IsServer reports whether an address is the https URL of a host, with nothing secret in it.
func IsServer(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

// renewAt is the part of its lifetime after which a token is renewed, so that a
// peer may be down for the rest of it.
const renewAt = 0.6

// WithToken is data with another token for its one user.
func WithToken(data []byte, token string) ([]byte, error) {
	config, err := clientcmd.Load(data)
	if err != nil || token == "" || len(config.AuthInfos) != 1 {
		return nil, fmt.Errorf("renew the token: expected one user and a new token")
	}
	for _, user := range config.AuthInfos {
		user.Token = token
	}
	return clientcmd.Write(*config)
}

// Claims is what a ServiceAccount token says of itself. It is not
// verified: it is our own, and only the peer's API server acts on it.
type Claims struct {
	Expires  int64    `json:"exp"`
	Issued   int64    `json:"iat"`
	Subject  string   `json:"sub"`
	Audience []string `json:"aud"`

	// Namespace and Name are those of the ServiceAccount.
	Namespace, Name string
}

// Due reports whether it is time to renew the token.
func (t Claims) Due(now time.Time) bool {
	lifetime := float64(t.Expires - t.Issued)
	return float64(now.Unix()) >= float64(t.Issued)+renewAt*lifetime
}

// ReadToken reads a ServiceAccount token that expires; false for any other.
func ReadToken(token string) (Claims, bool) {
	var claims Claims
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return claims, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.UnmarshalCaseSensitivePreserveInts(payload, &claims) != nil || claims.Expires <= claims.Issued || claims.Issued <= 0 {
		return claims, false
	}
	account, ok := strings.CutPrefix(claims.Subject, "system:serviceaccount:")
	if !ok {
		return claims, false
	}
	claims.Namespace, claims.Name, ok = strings.Cut(account, ":")
	return claims, ok && claims.Namespace != "" && claims.Name != ""
}
