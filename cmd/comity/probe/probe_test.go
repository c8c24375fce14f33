// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// authority signs certificates of servers.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	a := authority{certificate: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	a.certificate.Raw = a.sign(t, a.certificate, &a.key.PublicKey)
	return a
}

func (a authority) sign(t *testing.T, template *x509.Certificate, key *ecdsa.PublicKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func (a authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// serve starts an API server that answers everything with a status. change edits its certificate.
func (a authority) serve(t *testing.T, status int, change func(*x509.Certificate)) string {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	change(template)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("a credential was sent")
		}
		if r.URL.Path != "/version" {
			t.Errorf("got a request for %s, want /version", r.URL.Path)
		}
		w.WriteHeader(status)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{a.sign(t, template, &key.PublicKey)}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

func asItIs(*x509.Certificate) {}

// listen accepts connections and calls each with every one of them.
func listen(t *testing.T, each func(net.Conn)) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = connection.Close() })
			go each(connection)
		}
	}()
	return listener.Addr().String()
}

// unused is an address at which nothing listens.
func unused(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

func TestServers(t *testing.T) {
	ca, other := newAuthority(t, "the CA"), newAuthority(t, "another CA")
	silent := listen(t, func(net.Conn) {})
	rude := listen(t, func(c net.Conn) { _, _ = c.Write([]byte("SSH-2.0-server\r\n")) })
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	for _, tc := range []struct {
		name, url string
		ca        []byte
		want      []string // none: usable
	}{
		{"an API server that answers", ca.serve(t, http.StatusOK, asItIs), ca.pem(), nil},
		{"an API server that answers to nobody without a credential", ca.serve(t, http.StatusUnauthorized, asItIs), ca.pem(), nil},
		{"an API server that forbids", ca.serve(t, http.StatusForbidden, asItIs), ca.pem(), nil},
		{"a bundle of two CAs, the second of which signed", ca.serve(t, http.StatusOK, asItIs), append(other.pem(), ca.pem()...), nil},
		{"a certificate of another CA", other.serve(t, http.StatusOK, asItIs), ca.pem(), []string{"certificate signed by unknown authority"}},
		{"a certificate for another address", ca.serve(t, http.StatusOK, func(c *x509.Certificate) {
			c.IPAddresses, c.DNSNames = []net.IP{net.IPv4(10, 96, 0, 1)}, []string{"kubernetes.default"}
		}), ca.pem(), []string{"certificate is valid for 10.96.0.1, not 127.0.0.1"}},
		{"a certificate that has expired", ca.serve(t, http.StatusOK, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), ca.pem(), []string{"certificate has expired or is not yet valid", "is after"}},
		{"a port that nobody listens on", "https://" + unused(t), ca.pem(), []string{"connection refused"}},
		{"a server that never answers", "https://" + silent, ca.pem(), []string{"timed out"}},
		{"something that is no TLS server", "https://" + rude, ca.pem(), []string{"does not look like a TLS handshake"}},
		{"a server of plain HTTP", strings.Replace(plain.URL, "http:", "https:", 1), ca.pem(), []string{"does not look like a TLS handshake"}},
		{"a name that does not resolve", "https://no-such-host.invalid:6443", ca.pem(), []string{"cannot resolve no-such-host.invalid"}},
		{"a URL of plain HTTP", "http://127.0.0.1:6443", ca.pem(), []string{"expected https://host:port"}},
		{"an address that is not a URL", "127.0.0.1:6443", ca.pem(), []string{"expected https://host:port"}},
		{"a CA that is none", ca.serve(t, http.StatusOK, asItIs), []byte("x"), []string{"no PEM certificate"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			timeout := 10
			if tc.url == "https://"+silent {
				timeout = 1
			}
			got := Run(t.Context(), Request{Targets: []Target{{Target: tc.url, CA: tc.ca}}, TimeoutSeconds: timeout})
			if len(got) != 1 || got[0].Target != tc.url || tc.want == nil && got[0].Milliseconds <= 0 {
				t.Fatalf("got %+v, want one measured result for %s", got, tc.url)
			}
			check(t, got[0].Error, tc.want)
		})
	}
}

func TestURLs(t *testing.T) {
	answering := func(status int) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		t.Cleanup(server.Close)
		return server.URL + "/healthz"
	}
	for _, tc := range []struct {
		name, url string
		want      []string
	}{
		{"an agent", answering(http.StatusOK), nil},
		{"a proxy that accepts every connection", answering(http.StatusNotFound), []string{"404", "expected 200", "something else than the target may have answered"}},
		{"a redirect, which is not followed", answering(http.StatusFound), []string{"302"}},
		{"nobody", "http://" + unused(t) + "/healthz", []string{"connection refused"}},
		{"https", "https://10.0.0.1/healthz", []string{"expected http://host:port"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Run(t.Context(), Request{Targets: []Target{{Target: tc.url}}})
			check(t, got[0].Error, tc.want)
		})
	}
}

func check(t *testing.T, got string, want []string) {
	t.Helper()
	if (got == "") != (len(want) == 0) {
		t.Fatalf("got %q", got)
	}
	for _, part := range want {
		if !strings.Contains(got, part) {
			t.Errorf("got %q, want it to say %q", got, part)
		}
	}
}

func TestErrorsThatNoServerHereCanCauseAreExplained(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{&net.OpError{Err: syscall.EHOSTUNREACH}, "no route to host"},
		{&net.OpError{Err: syscall.ENETUNREACH}, "network is unreachable"},
		{&net.OpError{Err: syscall.ECONNRESET}, "connection reset by peer"},
		{&url.Error{Err: context.DeadlineExceeded}, "timed out"},
		{&net.DNSError{Name: "api", Err: "i/o timeout", IsTimeout: true}, "cannot resolve api: the DNS server does not answer"},
		{errors.New("something new"), "something new"},
	} {
		if got := explain(tc.err); !strings.Contains(got, tc.want) {
			t.Errorf("of %v got %q, want %q", tc.err, got, tc.want)
		}
	}
}

func TestResultsComeInTheOrderOfTargetsAndInTheTimeOfTheSlowest(t *testing.T) {
	silent := listen(t, func(net.Conn) {})
	request := Request{TimeoutSeconds: 1}
	for range parallel {
		request.Targets = append(request.Targets, Target{Target: "https://" + silent, CA: newAuthority(t, "x").pem()}, Target{Target: "x/"}, Target{Target: "http://" + silent})
	}
	start := time.Now()
	got := Run(t.Context(), request)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("%d targets took %s, want them side by side", len(request.Targets), took)
	}
	for i, result := range got {
		if want := request.Targets[i].Target; result.Target != want || strings.Contains(result.Error, "timed out") != (want != "x/") {
			t.Errorf("result %d is %+v, want that of %s", i, result, want)
		}
	}
}

func TestCommandRefusesWhatIsNoRequest(t *testing.T) {
	cmd := NewCommand()
	cmd.SetIn(strings.NewReader("servers:"))
	cmd.SetArgs(nil)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "expected JSON") {
		t.Errorf("got %v, want that it is no request", err)
	}
}

func TestOneServerIsCheckedByFlags(t *testing.T) {
	ca := newAuthority(t, "the CA")
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, ca.pem(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		args []string
		want string // none: no error
	}{
		{"a server that answers", []string{"--server", ca.serve(t, http.StatusForbidden, asItIs), "--ca-file", file}, ""},
		{"a server that does not listen", []string{"--server", "https://" + unused(t), "--ca-file", file}, "connect: connection refused"},
		{"a CA file that is not there", []string{"--server", "https://127.0.0.1", "--ca-file", file + "x"}, "--ca-file"},
		{"a server without a CA", []string{"--server", "https://127.0.0.1"}, "missing [ca-file]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd := NewCommand()
			cmd.SetOut(io.Discard)
			cmd.SetArgs(tc.args)
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			err := cmd.ExecuteContext(t.Context())
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
