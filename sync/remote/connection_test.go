// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
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
	"k8s.io/client-go/rest"

	"github.com/comity-mcs/comity/sync/model"
)

const token = "very-secret-token"

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
			config := &rest.Config{Host: server.URL, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
			told := make(chan Failure, 100)
			conn, err := Connect(context.Background(), Options{ID: "b", Self: "a", ClusterSet: "prod", ClusterUID: "uid-b", Config: config, Log: logr.Discard(), Hooks: Hooks{
				Changed: func(change model.MemberChange) {
					t.Errorf("told of a change %v of %s", change.What, change.Key)
				},
				LeaseRead: func(*Connection, string) { t.Error("told of a Lease") },
				State:     func(c *Connection) { p := c.State().Problem; told <- p },
				Rejected:  func() { t.Error("told of a record") },
				Restored:  func(*Connection, error) { t.Error("told of a restore") },
			}})
			if err != nil {
				t.Fatal(err)
			}
			select {
			case p := <-told:
				if p.Reason != c.reason || !strings.Contains(p.Message, "cluster b") || !strings.Contains(p.Message, "remedy: ") {
					t.Errorf("got %+v, want reason %s with cluster and remedy", p, c.reason)
				}
				if strings.Contains(p.Message, "written by the peer") || strings.Contains(p.Message, token) {
					t.Errorf("the message holds the peer's words, or the token: %s", p.Message)
				}
			case <-time.After(20 * time.Second):
				t.Error("nothing was told")
			}
			if conn.Verified() {
				t.Error("it passes for read")
			}
			conn.Stop()
			conn.Wait()
			server.CloseClientConnections()
			server.Close()
			goleak.VerifyNone(t, leaks)
		})
	}
}
