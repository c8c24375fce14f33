// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clientcmd "k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

// zeros never end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// hostile answers of an API server: each would cost the agent its memory, its token, or a
// goroutine for ever.
var hostile = map[string]http.HandlerFunc{
	"gzip that inflates to 3 GB": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		packed, _ := gzip.NewWriterLevel(w, gzip.BestCompression)
		_, _ = io.WriteString(packed, `{"kind":"Status","message":"`)
		_, _ = io.Copy(packed, io.LimitReader(zeros{}, 3<<30)) // until the connection is closed
	},
	"a header of a megabyte": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Warning", strings.Repeat("0", 1<<20))
		_, _ = io.WriteString(w, `{"spec":{"renewTime":"2026-01-01T00:00:00.000000Z"},"status":{"token":"renewed"}}`)
	},
	"a redirect": func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/elsewhere" { // which would answer what is expected
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
			return
		}
		_, _ = io.WriteString(w, `{"spec":{"renewTime":"2026-01-01T00:00:00.000000Z"},"status":{"token":"renewed"}}`)
	},
}

// FAULT 31: a peer whose API server is hostile is read with a limit by every single request, too.
func TestFault31ARequestOverAFreshConnectionIsBounded(t *testing.T) {
	claims := `{"iat":1000,"exp":2000,"sub":"system:serviceaccount:comity-system:peer-a","aud":["k8s"]}`
	token := "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
	for name, answer := range hostile {
		t.Run(name, func(t *testing.T) {
			server, ca := apiServer(t, answer)
			config := &rest.Config{Host: server.URL, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			renewal, failure := ReadLease(t.Context(), "b", "a", config)
			_, err := RenewSecret(t.Context(), "a", secretOf(t, config), nil, time.Unix(1900, 0))
			runtime.ReadMemStats(&after)
			server.Close()
			if renewal != "" || failure.Reason == "" || len(failure.Message) > 1000 {
				t.Errorf("the Lease is read: %q, %v", renewal, failure)
			}
			if err == nil || len(err.Error()) > 1000 {
				t.Errorf("the token is renewed: %v", err)
			}
			if name == "gzip that inflates to 3 GB" && failure.Reason != ReasonLimitExceeded {
				t.Errorf("the failure names no limit: %v", failure)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 32<<20 {
				t.Errorf("%d bytes were allocated", took)
			}
		})
	}
}

func TestARequestOverAFreshConnectionHasAShortDeadline(t *testing.T) {
	fresh, err := freshClient("a", &rest.Config{Host: "https://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if got := fresh.Transport.(*Transport).timeout; got != freshTimeout { // which TestEveryRequestButAWatchHasADeadline is about
		t.Errorf("it may take %v", got)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, failure := ReadLease(ended, "b", "a", &rest.Config{Host: "https://127.0.0.1:1"}); failure.Reason != ReasonUnreachable {
		t.Errorf("failure: %v", failure)
	}
}

func secretOf(t *testing.T, config *rest.Config) *corev1.Secret {
	t.Helper()
	file := clientcmdapi.NewConfig()
	file.Clusters["b"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos["a"] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	file.Contexts["b"] = &clientcmdapi.Context{Cluster: "b", AuthInfo: "a"}
	data, err := clientcmd.Write(*file)
	if err != nil {
		t.Fatal(fmt.Errorf("write the kubeconfig: %w", err))
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "peer-b"}, Data: map[string][]byte{kubeconfig.SecretKey: data}}
}
