// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/comity-mcs/comity/sync/model"
)

func renew(t *testing.T, h *Hub) {
	t.Helper()
	if err := h.renew(t.Context()); err != nil {
		t.Error(err)
	}
}

// token is one of account member-a, valid for an hour from issued on.
func token(issued time.Time) string {
	claims := fmt.Sprintf(`{"iat":%d,"exp":%d,"sub":"system:serviceaccount:comity-system:member-a","aud":["hub"]}`, issued.Unix(), issued.Add(time.Hour).Unix())
	return "x." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".x"
}

func TestTheTokenIsRenewedInTheSecret(t *testing.T) {
	issued := time.Unix(1_800_000_000, 0)
	fresh := token(issued.Add(40 * time.Minute))
	var asked []string
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		answer := authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: fresh}}
		answer.APIVersion, answer.Kind = "authentication.k8s.io/v1", "TokenRequest"
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer s.Close()

	old := kubeconfigFor(t, s, "", token(issued))
	secret := &corev1.Secret{Data: map[string][]byte{"kubeconfig": old}}
	secret.Namespace, secret.Name = "comity-system", model.ExchangeSecret
	h := &Hub{
		opts:  Options{Namespace: "comity-system", Log: logr.Discard()},
		link:  newLink(filepath.Join(t.TempDir(), "exchange"), "a"),
		local: fake.NewClientBuilder().WithObjects(secret).Build(),
	}
	write(t, h.link, old)
	if _, err := h.link.use(); err != nil {
		t.Fatal(err)
	}
	stored := func() string {
		var now corev1.Secret
		if err := h.local.Get(t.Context(), client.ObjectKeyFromObject(secret), &now); err != nil {
			t.Fatal(err)
		}
		return string(now.Data["kubeconfig"])
	}

	h.now = func() time.Time { return issued.Add(30 * time.Minute) }
	renew(t, h)
	if stored() != string(old) || len(asked) != 0 {
		t.Errorf("a token of which half is left was renewed: %v", asked)
	}
	h.now = func() time.Time { return issued.Add(40 * time.Minute) }
	renew(t, h)
	if !strings.Contains(stored(), fresh) {
		t.Errorf("not renewed; asked %v", asked)
	}
	renew(t, h) // the file still holds the old one
	if want := "POST /api/v1/namespaces/comity-system/serviceaccounts/member-a/token"; len(asked) != 1 || asked[0] != want {
		t.Errorf("asked %v, want once %s", asked, want)
	}
}

func TestAFileThatIsNoSecretsIsLeftToWhoeverWroteIt(t *testing.T) {
	s := server(t)
	h := &Hub{
		opts:  Options{Namespace: "comity-system", Log: logr.Discard()},
		link:  newLink(filepath.Join(t.TempDir(), "exchange"), "a"),
		local: fake.NewClientBuilder().Build(),
		now:   time.Now,
	}
	write(t, h.link, kubeconfigFor(t, s, "", token(time.Unix(0, 0))))
	if _, err := h.link.use(); err != nil {
		t.Fatal(err)
	}
	renew(t, h)
}
