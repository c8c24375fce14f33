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
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// SecretKey is the key of a Secret that holds a kubeconfig.
const SecretKey = "kubeconfig"

// Fault is why a kubeconfig is refused: the field, what was expected, and what
// to do. It never holds a value from the kubeconfig, which may be a credential.
type Fault struct{ Field, Expected, Remedy string }

// String is for an event on the Secret.
func (f *Fault) String() string {
	return fmt.Sprintf("%s: expected %s; remedy: %s", f.Field, f.Expected, f.Remedy)
}

const rejoin = "write the Secret again with kubectl comity join"

// Sanitize turns the kubeconfig in the Secret of a Peer into a client configuration,
// or says why not. A kubeconfig is code as well as data: exec plugins and auth
// providers run programs, file paths read this pod's files (CVE-2022-24817). So
// only inline data is taken over, field by field; what is not named here is
// not used, and what could do harm is refused even where nothing refers to it.
func Sanitize(data []byte) (*rest.Config, *Fault) {
	if len(data) == 0 {
		return nil, &Fault{"kubeconfig", "a kubeconfig, but the key is missing or empty", rejoin}
	}
	// The decoder's error quotes what it could not read, so it is not passed on.
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, &Fault{"kubeconfig", "YAML of apiVersion v1, kind Config, but it cannot be read as that", rejoin}
	}
	var faults []*Fault
	for _, name := range slices.Sorted(maps.Keys(config.Clusters)) {
		faults = append(faults, checkCluster(config.Clusters[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(config.AuthInfos)) {
		faults = append(faults, checkUser(config.AuthInfos[name]))
	}
	cluster, user, fault := onlyContext(config)
	if fault = cmp.Or(append(faults, fault)...); fault != nil {
		return nil, fault
	}
	return &rest.Config{
		Host:        cluster.Server,
		BearerToken: user.Token,
		TLSClientConfig: rest.TLSClientConfig{
			ServerName: cluster.TLSServerName,
			CAData:     cluster.CertificateAuthorityData,
			CertData:   user.ClientCertificateData,
			KeyData:    user.ClientKeyData,
		},
	}, nil
}

// onlyContext finds the one context. With several, which one is meant would
// hang on current-context, and a slip there would connect to another cluster.
func onlyContext(config *clientcmdapi.Config) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo, *Fault) {
	name := strings.Join(slices.Sorted(maps.Keys(config.Contexts)), ",")
	context := cmp.Or(config.Contexts[name], &clientcmdapi.Context{})
	cluster, user := config.Clusters[context.Cluster], config.AuthInfos[context.AuthInfo]
	return cluster, user, firstOf("", []check{
		{len(config.Contexts) != 1, "contexts", fmt.Sprintf("exactly one context, found %d", len(config.Contexts)), "remove all contexts but the peer's"},
		{config.CurrentContext != "" && config.CurrentContext != name, "current-context", "the name of the only context, or nothing", "set it to that name"},
		{cluster == nil, "contexts[0].context.cluster", "the name of an entry in clusters", rejoin},
		{user == nil, "contexts[0].context.user", "the name of an entry in users", rejoin},
	})
}

// check is one condition under which a kubeconfig is refused, and the Fault that it is then.
type check struct {
	bad                     bool
	field, expected, remedy string
}

// firstOf is the first fault of a part of a kubeconfig; nil if there is none.
func firstOf(part string, checks []check) *Fault {
	for _, c := range checks {
		if c.bad {
			return &Fault{part + c.field, c.expected, c.remedy}
		}
	}
	return nil
}

// IsServer reports whether an address is the https URL of a host, with nothing secret in it.
func IsServer(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

func checkCluster(c *clientcmdapi.Cluster) *Fault {
	const reachable = "give the peer's API server as this cluster reaches it"
	return firstOf("clusters.cluster.", []check{
		{c.CertificateAuthority != "", "certificate-authority", "no file path", "put the certificates into certificate-authority-data"},
		{c.InsecureSkipTLSVerify, "insecure-skip-tls-verify", "a verified server", "remove it and give certificate-authority-data"},
		{c.ProxyURL != "", "proxy-url", "no proxy", "give a server address that this cluster reaches itself"},
		{c.Server == "", "server", "an https URL, but it is empty", reachable},
		{!IsServer(c.Server),
			"server", "an https URL of a host and nothing secret, such as https://10.0.0.1:6443", reachable},
		{len(c.CertificateAuthorityData) > 0 && !x509.NewCertPool().AppendCertsFromPEM(c.CertificateAuthorityData),
			"certificate-authority-data", "base64 of PEM certificates", rejoin},
	})
}

func checkUser(u *clientcmdapi.AuthInfo) *Fault {
	const inline = "put a token, or client-certificate-data and client-key-data, into the kubeconfig"
	certified := len(u.ClientCertificateData) > 0 || len(u.ClientKeyData) > 0
	_, err := tls.X509KeyPair(u.ClientCertificateData, u.ClientKeyData)
	return firstOf("users.user", []check{
		{u.Exec != nil, ".exec", "no exec plugin, which would run a program in this pod", inline},
		{u.AuthProvider != nil, ".auth-provider", "no auth provider, which would run code in this pod", inline},
		{u.TokenFile != "", ".tokenFile", "no file path", inline},
		{u.ClientCertificate != "", ".client-certificate", "no file path", inline},
		{u.ClientKey != "", ".client-key", "no file path", inline},
		{u.Username != "" || u.Password != "", ".username", "no password", inline},
		{u.Impersonate != "" || u.ImpersonateUID != "" || len(u.ImpersonateGroups) > 0 || len(u.ImpersonateUserExtra) > 0,
			".as", "no impersonation", "use the account that the peer made for this cluster"},
		{u.Token == "" && !certified, "", "a token or a client certificate, found neither", inline},
		{strings.ContainsFunc(u.Token, func(r rune) bool { return r <= ' ' || r > '~' }),
			".token", "a token without white space or control characters", rejoin},
		{certified && err != nil, ".client-certificate-data", "a PEM certificate and, in client-key-data, its key", rejoin},
	})
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
	out, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("renew the token: encode: %w", err)
	}
	return out, nil
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
	if err != nil || json.Unmarshal(payload, &claims) != nil || claims.Expires <= claims.Issued || claims.Issued <= 0 {
		return claims, false
	}
	account, ok := strings.CutPrefix(claims.Subject, "system:serviceaccount:")
	if !ok {
		return claims, false
	}
	claims.Namespace, claims.Name, ok = strings.Cut(account, ":")
	return claims, ok && claims.Namespace != "" && claims.Name != ""
}
