// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const token = "very-secret-token"

// certificate is a self-signed one and its key, in PEM.
func certificate(t testing.TB) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

// config is a good one, changed.
func config(t testing.TB, change ...func(*clientcmdapi.Config)) []byte {
	t.Helper()
	ca, _ := certificate(t)
	config := clientcmdapi.NewConfig()
	config.Clusters["b"] = &clientcmdapi.Cluster{Server: "https://10.0.0.1:6443", CertificateAuthorityData: ca, TLSServerName: "kubernetes"}
	config.AuthInfos["b"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["b"] = &clientcmdapi.Context{Cluster: "b", AuthInfo: "b"}
	config.CurrentContext = "b"
	for _, c := range change {
		c(config)
	}
	data, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestAGoodKubeconfigIsTakenOverFieldByField(t *testing.T) {
	cert, key := certificate(t)
	config, f := Sanitize(config(t, func(k *clientcmdapi.Config) {
		k.AuthInfos["b"].ClientCertificateData, k.AuthInfos["b"].ClientKeyData = cert, key
		k.CurrentContext = ""
	}))
	if f != nil {
		t.Fatal(f)
	}
	if config.Host != "https://10.0.0.1:6443" || config.BearerToken != token || config.ServerName != "kubernetes" ||
		len(config.CAData) == 0 || len(config.CertData) == 0 || len(config.KeyData) == 0 || config.ExecProvider != nil || config.Insecure {
		t.Errorf("got %v", config)
	}
}

func TestAKubeconfigIsRefused(t *testing.T) {
	cluster := func(change func(*clientcmdapi.Cluster)) func(*clientcmdapi.Config) {
		return func(k *clientcmdapi.Config) { change(k.Clusters["b"]) }
	}
	user := func(change func(*clientcmdapi.AuthInfo)) func(*clientcmdapi.Config) {
		return func(k *clientcmdapi.Config) { change(k.AuthInfos["b"]) }
	}
	for _, c := range []struct {
		name   string
		change func(*clientcmdapi.Config)
		field  string
	}{
		{"for an exec plugin", user(func(u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{Command: "sh", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: "Never"}
		}), "users[0].user.exec"},
		{"for an exec plugin of a user that nothing names", func(k *clientcmdapi.Config) {
			k.AuthInfos["other"] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{Command: "sh"}}
		}, "users[1].user.exec"},
		{"for an auth provider", user(func(u *clientcmdapi.AuthInfo) { u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc"} }), "users[0].user.auth-provider"},
		{"for a token file", user(func(u *clientcmdapi.AuthInfo) { u.TokenFile = "/etc/passwd" }), "users[0].user.tokenFile"},
		{"for a certificate file", user(func(u *clientcmdapi.AuthInfo) { u.ClientCertificate = "/etc/passwd" }), "users[0].user.client-certificate"},
		{"for a key file", user(func(u *clientcmdapi.AuthInfo) { u.ClientKey = "/etc/passwd" }), "users[0].user.client-key"},
		{"for a password", user(func(u *clientcmdapi.AuthInfo) { u.Password = "x" }), "users[0].user.password"},
		{"for impersonation", user(func(u *clientcmdapi.AuthInfo) { u.Impersonate = "admin" }), "users[0].user.as"},
		{"for no credential", user(func(u *clientcmdapi.AuthInfo) { u.Token = "" }), "user"},
		{"for a token with a line break", user(func(u *clientcmdapi.AuthInfo) { u.Token = "a\r\nHost: evil" }), "token"},
		{"for half a key pair", user(func(u *clientcmdapi.AuthInfo) { u.ClientKeyData = []byte("x") }), "client-certificate-data"},
		{"for an authority file", cluster(func(c *clientcmdapi.Cluster) { c.CertificateAuthority = "/etc/passwd" }), "clusters[0].cluster.certificate-authority"},
		{"for an unverified server", cluster(func(c *clientcmdapi.Cluster) {
			c.InsecureSkipTLSVerify, c.CertificateAuthorityData = true, nil
		}), "clusters[0].cluster.insecure-skip-tls-verify"},
		{"for a proxy", cluster(func(c *clientcmdapi.Cluster) { c.ProxyURL = "http://proxy" }), "clusters[0].cluster.proxy-url"},
		{"for no server", cluster(func(c *clientcmdapi.Cluster) { c.Server = "" }), "server"},
		{"for plain http", cluster(func(c *clientcmdapi.Cluster) { c.Server = "http://10.0.0.1" }), "server"},
		{"for another scheme", cluster(func(c *clientcmdapi.Cluster) { c.Server = "file:///etc" }), "server"},
		{"for a server with a password in it", cluster(func(c *clientcmdapi.Cluster) { c.Server = "https://a:b@host" }), "server"},
		{"for an authority that is none", cluster(func(c *clientcmdapi.Cluster) { c.CertificateAuthorityData = []byte("x") }), "certificate-authority-data"},
		{"for two contexts", func(k *clientcmdapi.Config) { k.Contexts["c"] = &clientcmdapi.Context{Cluster: "b", AuthInfo: "b"} }, "clusters, users and contexts"},
		{"for no context", func(k *clientcmdapi.Config) { clear(k.Contexts) }, "clusters, users and contexts"},
		{"for a current context that does not exist", func(k *clientcmdapi.Config) { k.CurrentContext = "x" }, "contexts"},
		{"for a context without its cluster", func(k *clientcmdapi.Config) { k.Contexts["b"].Cluster = "x" }, "contexts"},
		{"for a context without its user", func(k *clientcmdapi.Config) { k.Contexts["b"].AuthInfo = "x" }, "contexts"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config, f := Sanitize(config(t, c.change))
			if f == nil {
				t.Fatalf("accepted: %v", config)
			}
			if field, rest, _ := strings.Cut(f.Error(), ": expected "); field != c.field && field != fmt.Sprintf("unknown field %q", c.field) || !strings.Contains(rest, "; remedy: ") {
				t.Errorf("got %v, want field %s with what is expected and a remedy", f, c.field)
			}
		})
	}
}

func TestWhatIsNoKubeconfigIsRefusedWithoutQuotingIt(t *testing.T) {
	for _, data := range []string{"", token, "{", "kind: Config\nusers: " + token, "\x00\x01", "- a\n- b", "kind: Secret\napiVersion: v1"} {
		_, f := Sanitize([]byte(data))
		if f == nil {
			t.Errorf("%q is accepted", data)
			continue
		}
		if strings.Contains(f.Error(), token) {
			t.Errorf("the message shows what may be a credential: %s", f)
		}
	}
}

// FuzzSanitize looks for a kubeconfig that gets through with something that
// runs a program, reads a file or speaks to an unverified server, and for a
// refusal that shows a credential.
func FuzzSanitize(f *testing.F) {
	user := func(change func(*clientcmdapi.AuthInfo)) []byte {
		return config(f, func(k *clientcmdapi.Config) { change(k.AuthInfos["b"]) })
	}
	f.Add(config(f))
	f.Add(user(func(u *clientcmdapi.AuthInfo) {
		u.Exec = &clientcmdapi.ExecConfig{Command: "sh", APIVersion: "client.authentication.k8s.io/v1"}
	}))
	f.Add(user(func(u *clientcmdapi.AuthInfo) { u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc"} }))
	f.Add(user(func(u *clientcmdapi.AuthInfo) { u.TokenFile = "/etc/passwd" }))
	f.Add(user(func(u *clientcmdapi.AuthInfo) { u.Impersonate = "admin" }))
	f.Add(user(func(u *clientcmdapi.AuthInfo) { u.Token = "a very secret token" }))
	f.Add([]byte("apiVersion: v1\nkind: Config\nusers:\n- name: a\n  user:\n    exec:\n      command: sh\n"))
	f.Add([]byte("clusters: [{name: a, cluster: {server: 'https://x', certificate-authority: /etc/passwd}}]"))
	f.Add([]byte("\xef\xbb\xbfkind: Config\nusers: [{name: a, user: {token: very-secret-token}}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, no := Sanitize(data)
		if (got == nil) == (no == nil) {
			t.Fatal("neither accepted nor refused")
		}
		if no != nil {
			showsNoCredential(t, data, no)
			return
		}
		if got.ExecProvider != nil || got.AuthProvider != nil || got.BearerTokenFile != "" || got.CAFile != "" ||
			got.CertFile != "" || got.KeyFile != "" || got.Insecure || got.Username != "" || got.Password != "" || got.Proxy != nil ||
			got.Impersonate.UserName != "" || got.WrapTransport != nil || got.Dial != nil {
			t.Errorf("accepted %#v", got)
		}
		if server, err := url.Parse(got.Host); err != nil || server.Scheme != "https" || server.Hostname() == "" {
			t.Errorf("accepted the server %q", got.Host)
		}
		if got.BearerToken == "" && len(got.CertData) == 0 {
			t.Error("accepted without a credential")
		}
	})
}

// showsNoCredential fails if the refusal holds a credential of data, that is
// one long enough to be told from an English word.
func showsNoCredential(t *testing.T, data []byte, no error) {
	t.Helper()
	read, err := clientcmd.Load(data)
	if err != nil {
		return
	}
	for _, u := range read.AuthInfos {
		if u == nil {
			continue
		}
		for _, secret := range []string{u.Token, u.Password, string(u.ClientKeyData)} {
			if len(secret) >= 12 && strings.Contains(no.Error(), secret) {
				t.Errorf("the refusal shows a credential: %s", no)
			}
		}
	}
}
