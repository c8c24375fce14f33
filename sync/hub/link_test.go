// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// server answers with the token, the path and the name that it was asked with.
func server(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s %s", r.Header.Get("Authorization"), r.URL.Path, r.UserAgent())
	}))
	t.Cleanup(s.Close)
	return s
}

// kubeconfigFor leads to a path of s with token.
func kubeconfigFor(t *testing.T, s *httptest.Server, path, token string) []byte {
	t.Helper()
	config := clientcmdapi.NewConfig()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	config.Clusters["hub"] = &clientcmdapi.Cluster{Server: s.URL + path, CertificateAuthorityData: ca}
	config.AuthInfos["member-a"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: "member-a"}
	text, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func write(t *testing.T, l *link, content []byte) {
	t.Helper()
	if err := os.WriteFile(l.path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func ask(t *testing.T, l *link) (string, error) {
	t.Helper()
	answer, err := (&http.Client{Transport: l}).Get(placeholder + "/api/v1")
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), nil
}

func TestRequestsGoWhereTheFileSays(t *testing.T) {
	s := server(t)
	l := newLink(filepath.Join(t.TempDir(), "exchange"), "a")

	if changed, err := l.use(); changed || err == nil || !strings.Contains(err.Error(), "the file does not exist; run kubectl comity join") {
		t.Errorf("without the file: %t, %v", changed, err)
	}
	if err := l.read(logr.Discard()); err != nil {
		t.Errorf("without the file the process ends: %v", err)
	}
	if _, err := ask(t, l); err == nil || !strings.Contains(err.Error(), "the file does not exist") {
		t.Errorf("asked without the file: %v", err)
	}

	write(t, l, kubeconfigFor(t, s, "/clusters/hub", "one"))
	if changed, err := l.use(); !changed || err != nil {
		t.Fatalf("with the file: %t, %v", changed, err)
	}
	if got, err := ask(t, l); err != nil || got != "Bearer one /clusters/hub/api/v1 comity/a" {
		t.Errorf("got %q, %v", got, err)
	}
	if changed, err := l.use(); changed || err != nil {
		t.Errorf("nothing changed, but: %t, %v", changed, err)
	}

	write(t, l, kubeconfigFor(t, s, "/clusters/hub", "two"))
	if changed, err := l.use(); !changed || err != nil {
		t.Fatalf("with a new token: %t, %v", changed, err)
	}
	if got, _ := ask(t, l); !strings.HasPrefix(got, "Bearer two ") {
		t.Errorf("asked with %q", got)
	}
}

func TestAFileThatCannotBeUsedChangesNothing(t *testing.T) {
	s := server(t)
	l := newLink(filepath.Join(t.TempDir(), "exchange"), "a")
	write(t, l, kubeconfigFor(t, s, "", "one"))
	if _, err := l.use(); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"nothing":  nil,
		"no YAML":  []byte("{secret-text"),
		"a plugin": []byte(strings.Replace(string(kubeconfigFor(t, s, "", "secret-text")), "token: secret-text", "exec: {apiVersion: v1, command: /bin/sh}", 1)),
	} {
		t.Run(name, func(t *testing.T) {
			write(t, l, content)
			changed, err := l.use()
			if changed || err == nil || strings.Contains(err.Error(), "secret-text") {
				t.Errorf("got %t, %v", changed, err)
			}
			if got, _ := ask(t, l); !strings.HasPrefix(got, "Bearer one ") {
				t.Errorf("asked with %q", got)
			}
		})
	}
}

func TestAnotherServerIsNotTakenForTheSameHub(t *testing.T) {
	one, other := server(t), server(t)
	l := newLink(filepath.Join(t.TempDir(), "exchange"), "a")
	write(t, l, kubeconfigFor(t, one, "", "one"))
	if _, err := l.use(); err != nil {
		t.Fatal(err)
	}
	write(t, l, kubeconfigFor(t, other, "", "one"))
	if changed, err := l.use(); changed || !errors.Is(err, errServerChanged) {
		t.Errorf("got %t, %v; what was read from the one says nothing about the other", changed, err)
	}
}
