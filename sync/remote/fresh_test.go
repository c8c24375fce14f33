// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"encoding/base64"
	"fmt"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clientcmd "k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

// FAULTS 31 and 44: a peer whose API server is hostile is read with a limit by every single
// request, too: what inflates to gigabytes costs no more than that.
func TestFault31ARequestOverAFreshConnectionIsBounded(t *testing.T) {
	claims := `{"iat":1000,"exp":2000,"sub":"system:serviceaccount:comity-system:peer-a","aud":["k8s"]}`
	token := "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
	packed()
	fullPage() // now, and not while memory is measured
	for name, answer := range hostile {
		t.Run(name, func(t *testing.T) {
			server, ca := apiServer(t, answer)
			config := &rest.Config{Host: server.URL, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			ctx, cancel := context.WithTimeout(t.Context(), 4*freshTimeout)
			defer cancel()
			begun := time.Now()
			renewal, failure := ReadLease(ctx, "b", "a", config)
			_, err := RenewSecret(ctx, "a", secretOf(t, config), nil, time.Unix(1900, 0))
			if took := time.Since(begun); took > 3*freshTimeout {
				t.Errorf("the two requests took %v", took)
			}
			runtime.ReadMemStats(&after)
			server.Close()
			if renewal != "" || failure.Reason == "" || len(failure.Message) > 1000 {
				t.Errorf("the Lease is read: %q, %v", renewal, failure)
			}
			if err == nil || len(err.Error()) > 1000 {
				t.Errorf("the token is renewed: %v", err)
			}
			if name == "gzip that inflates to 3 GB" && failure.Reason != model.ReasonLimitExceeded {
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
