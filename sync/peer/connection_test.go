// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// apiServer answers every request with answer, over TLS.
func apiServer(t *testing.T, answer http.HandlerFunc) (*httptest.Server, []byte) {
	t.Helper()
	server := httptest.NewUnstartedServer(answer)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	return server, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

func status(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":"written by the peer\u001b[31m"}`, code, reason)
}

func TestWhyAPeerCannotBeReadIsToldInOurWords(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		reason string
	}{
		{"it forbids reading", func(w http.ResponseWriter, _ *http.Request) { status(w, 403, "Forbidden") }, ReasonForbidden},
		{"it does not know the token", func(w http.ResponseWriter, _ *http.Request) { status(w, 401, "Unauthorized") }, ReasonUnauthorized},
		{"it has no Comity", func(w http.ResponseWriter, _ *http.Request) { status(w, 404, "NotFound") }, ReasonNotInstalled},
		{"it fails", func(w http.ResponseWriter, _ *http.Request) { status(w, 500, "InternalError") }, ReasonUnreachable},
		{"it hangs up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ReasonUnreachable},
		{"it sends elsewhere", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://127.0.0.1:1/", http.StatusFound)
		}, ReasonUnreachable},
	} {
		t.Run(c.name, func(t *testing.T) {
			leaks := goleak.IgnoreCurrent()
			server, ca := apiServer(t, c.answer)
			config, f := sanitize(kubeconfig(t, func(k *clientcmdapi.Config) {
				k.Clusters["b"].Server, k.Clusters["b"].CertificateAuthorityData, k.Clusters["b"].TLSServerName = server.URL, ca, ""
			}))
			if f != nil {
				t.Fatal(f)
			}
			told := make(chan failure, 100)
			conn, err := connect(context.Background(), "b", "a", "prod", config, logr.Discard(), hooks{
				key:       func(types.NamespacedName) { t.Error("told of an export") },
				namespace: func(string) { t.Error("told of a namespace") },
				state:     func(c *connection) { p, _ := c.state(); told <- p },
				rejected:  func(*connection, error) { t.Error("told of a record") },
			})
			if err != nil {
				t.Fatal(err)
			}
			select {
			case p := <-told:
				if p.reason != c.reason || !strings.Contains(p.message, "cluster b") || !strings.Contains(p.message, "remedy: ") {
					t.Errorf("got %+v, want reason %s with cluster and remedy", p, c.reason)
				}
				if strings.Contains(p.message, "written by the peer") || strings.Contains(p.message, token) {
					t.Errorf("the message holds the peer's words, or the token: %s", p.message)
				}
			case <-time.After(20 * time.Second):
				t.Error("nothing was told")
			}
			if conn.verified.Load() {
				t.Error("it passes for read")
			}
			conn.stop()
			conn.wait()
			server.CloseClientConnections()
			server.Close()
			goleak.VerifyNone(t, leaks)
		})
	}
}

func TestATokenIsRenewedForItsOwnAccountAndWrittenIntoTheSecret(t *testing.T) {
	old := jwt(`{"iat":1000,"exp":2000,"sub":"system:serviceaccount:comity-system:peer-a","aud":["k8s"]}`)
	var asked []string
	server, ca := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		var request authenticationv1.TokenRequest
		_ = json.NewDecoder(r.Body).Decode(&request)
		asked = append(asked, fmt.Sprint(r.Method, r.URL.Path, *request.Spec.ExpirationSeconds, request.Spec.Audiences, r.Header.Get("Authorization") == "Bearer "+old))
		request.Status.Token = "renewed"
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(request)
	})
	defer server.Close()
	data := kubeconfig(t, func(k *clientcmdapi.Config) {
		k.Clusters["b"].Server, k.Clusters["b"].CertificateAuthorityData, k.Clusters["b"].TLSServerName = server.URL, ca, ""
		k.AuthInfos["b"].Token = old
	})
	config, f := sanitize(data)
	if f != nil {
		t.Fatal(f)
	}
	config.ContentType = "application/json"
	stored := secret("peer-b", 0, "b", "prod", data)
	local := fake.NewClientBuilder().WithObjects(&stored).Build()
	cached := &corev1.Secret{}
	if err := local.Get(context.Background(), client.ObjectKeyFromObject(&stored), cached); err != nil {
		t.Fatal(err)
	}
	r := &renewer{set: New(Options{Log: logr.Discard()}), client: local}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	conn := &connection{id: "b", config: config, http: httpClient}
	for _, second := range []int64{1100, 1700} { // too early, then due
		if err := r.renew(context.Background(), conn, cached, time.Unix(second, 0)); err != nil {
			t.Fatal(err)
		}
	}
	want := "POST/api/v1/namespaces/comity-system/serviceaccounts/peer-a/token1000[k8s]true"
	if len(asked) != 1 || strings.ReplaceAll(asked[0], " ", "") != want {
		t.Errorf("asked %q, want once %q", asked, want)
	}
	if err := local.Get(context.Background(), client.ObjectKeyFromObject(&stored), cached); err != nil {
		t.Fatal(err)
	}
	if now, f := sanitize(cached.Data[secretKey]); f != nil || now.BearerToken != "renewed" {
		t.Errorf("the Secret holds %v, %v", now, f)
	}
}
