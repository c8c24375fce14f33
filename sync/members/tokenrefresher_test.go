// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

func jwt(payload string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
}

func TestATokenIsRenewedForItsOwnAccountAndWrittenIntoTheSecret(t *testing.T) {
	old := jwt(`{"iat":1000,"exp":2000,"sub":"system:serviceaccount:comity-system:peer-a","aud":["k8s"]}`)
	var mu sync.Mutex
	var asked []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		object, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		request, is := object.(*authenticationv1.TokenRequest)
		if !is {
			t.Errorf("not a TokenRequest: %v", err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, fmt.Sprint(r.Method, r.URL.Path, ptr.Deref(request.Spec.ExpirationSeconds, 0), request.Spec.Audiences, r.Header.Get("Authorization") == "Bearer "+old))
		request.Status.Token = "renewed"
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(request)
	}))
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	defer server.Close()
	data := kubeconfigOf(t, server.URL, ca, old)
	stored := secret("peer-b", data)
	local := fake.NewClientBuilder().WithObjects(&stored).Build()
	cached := &corev1.Secret{}
	if err := local.Get(context.Background(), client.ObjectKeyFromObject(&stored), cached); err != nil {
		t.Fatal(err)
	}
	for _, second := range []int64{1100, 1700} { // too early, then due
		if _, err := remote.RenewSecret(context.Background(), "a", cached, local, time.Unix(second, 0)); err != nil {
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
	if now, f := kubeconfig.Sanitize(cached.Data[kubeconfig.SecretKey]); f != nil || now.BearerToken != "renewed" {
		t.Errorf("the Secret holds %v, %v", now, f)
	}
}

// silentTokens is a peer that answers everything but requests for a token; asked is closed
// with the first of these.
func silentTokens(t *testing.T) (server *httptest.Server, asked <-chan struct{}) {
	t.Helper()
	first, released := make(chan struct{}), make(chan struct{})
	isAsked := sync.OnceFunc(func() { close(first) })
	server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/token") {
			isAsked()
			select {
			case <-released:
			case <-r.Context().Done():
			}
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(released) })
	return server, first
}

// renewing is a peer that grants each request for a token once after is closed.
func renewing(t *testing.T, after <-chan struct{}) *httptest.Server {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-after:
		case <-t.Context().Done():
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: "renewed"}})
	}))
	t.Cleanup(server.Close)
	return server
}

// FAULT 29: a peer that never answers a TokenRequest delays no other peer.
func TestFault29APeerThatNeverAnswersATokenRequestDelaysNoOtherPeer(t *testing.T) {
	old := jwt(`{"iat":1000,"exp":2000,"sub":"system:serviceaccount:comity-system:peer-a","aud":["k8s"]}`)
	builder := fake.NewClientBuilder()
	set := New(Options{Self: "a", Log: logr.Discard()})
	silent, asked := silentTokens(t)
	// If one were asked after the other, this would fail in either order.
	for i, server := range []*httptest.Server{silent, renewing(t, asked)} {
		id := model.ClusterID("bc"[i : i+1])
		ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		data := kubeconfigOf(t, server.URL, ca, old)
		stored := secret("peer-"+string(id), data)
		builder.WithObjects(&stored)
		set.members[id] = &member{id: id, active: &remote.Connection{}, claim: claim{secret: &stored}}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second) // less than a request may take
	defer cancel()
	local := builder.WithInterceptorFuncs(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		defer cancel() // the other peer never answers
		return c.Patch(ctx, o, p, opts...)
	}}).Build()
	for _, m := range set.members {
		cached := &corev1.Secret{}
		if err := local.Get(context.Background(), client.ObjectKeyFromObject(m.claim.secret), cached); err != nil {
			t.Fatal(err)
		}
		m.claim.secret = cached
	}
	set.refreshAll(ctx, local)
	now := &corev1.Secret{}
	if err := local.Get(context.Background(), client.ObjectKey{Namespace: "comity-system", Name: "peer-c"}, now); err != nil {
		t.Fatal(err)
	}
	if config, f := kubeconfig.Sanitize(now.Data[kubeconfig.SecretKey]); f != nil || config.BearerToken != "renewed" {
		t.Errorf("the token for c was not renewed beside a peer that does not answer: %v", f)
	}
}

// What the Secret holds may be newer than the file that the hub is reached with, which follows late.
func TestTheTokenForTheHubIsRenewedInItsSecret(t *testing.T) {
	old := jwt(`{"iat":1000,"exp":2000,"sub":"system:serviceaccount:comity-system:member-a","aud":["hub"]}`)
	asked := make(chan struct{})
	close(asked)
	server := renewing(t, asked)
	stored := secret(model.ExchangeSecret, kubeconfigOf(t, server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), old))
	local := fake.NewClientBuilder().WithObjects(&stored).Build()
	set := New(Options{Self: "a", Namespace: stored.Namespace, Log: logr.Discard()})
	set.use(nil, []corev1.Secret{stored})
	set.refreshAll(t.Context(), local)
	now := &corev1.Secret{}
	if err := local.Get(t.Context(), client.ObjectKeyFromObject(&stored), now); err != nil {
		t.Fatal(err)
	}
	if config, f := kubeconfig.Sanitize(now.Data[kubeconfig.SecretKey]); f != nil || config.BearerToken != "renewed" {
		t.Errorf("the token for the hub was not renewed: %v", f)
	}
}

// withToken is the Secret of the Peer with another token.
func (w *world) withToken(token string) corev1.Secret {
	w.t.Helper()
	s := w.server.secret()
	var err error
	if s.Data[kubeconfig.SecretKey], err = kubeconfig.WithToken(s.Data[kubeconfig.SecretKey], token); err != nil {
		w.t.Fatal(err)
	}
	return s
}

func TestANewTokenInTheSecretMakesAConnectionThatReplacesTheOneBefore(t *testing.T) {
	w := exporting(t, 1)
	before, told := w.active(), w.times("cluster b")
	w.secrets(w.withToken("renewed"))
	w.await("the token is in use", func() bool { return w.active().Config().BearerToken == "renewed" && !w.trying() })
	if w.active() == before || !w.member().Synced || !w.exports(keyOf(0)) || w.times("cluster b") == told {
		t.Error("it is not the connection that is read")
	}
}

func TestATokenThatIsRefusedLeavesTheOldOneInUseAndIsReported(t *testing.T) {
	w := exporting(t, 1)
	before := w.active()
	refuse := func(f func(string) (int, string)) { w.server.change(func() { w.server.refuse = f }) }
	w.await("everything is watched", func() bool {
		open := 0
		w.server.change(func() { open = len(w.server.watches) })
		return open == 8
	})
	refuse(func(string) (int, string) { return 401, "Unauthorized" }) // requests; the watches stay open
	w.secrets(w.withToken("refused"))
	w.await("it is reported", func() bool { return w.condition(v1alpha1.PeerAccepted) == "False Unauthorized" })
	if got := w.condition(v1alpha1.PeerConnected); got != "True Connected" || !w.trying() || !w.member().Synced || !strings.Contains(w.message(v1alpha1.PeerAccepted), "the token is not accepted") {
		t.Errorf("condition %s, %s", got, w.message(v1alpha1.PeerAccepted))
	}
	if before.Config().BearerToken != token || w.active() != before {
		t.Error("it is in use")
	}
	w.server.put("exportrecords", record(shared, 7))
	w.await("the watches go on", func() bool { return w.exports(keyOf(7)) })
	refuse(nil)
	w.secrets(w.withToken("accepted"))
	w.await("a better one is in use", func() bool { return w.condition(v1alpha1.PeerAccepted) == "True Accepted" && !w.trying() })
	if diff := cmp.Diff([]string{"Warning Unauthorized"}, w.kinds()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestASecretThatIsTurnedBackLeavesThePeerRead(t *testing.T) {
	w := exporting(t, 1)
	before, elsewhere := w.active(), w.server.secret()
	elsewhere.Data[kubeconfig.SecretKey] = kubeconfigOf(t, "https://127.0.0.1:1", w.server.ca(), token)
	w.secrets(elsewhere)
	w.await("another server is on trial", func() bool { return w.condition(v1alpha1.PeerAccepted) == "False Unreachable" && w.trying() })
	w.secrets(w.withToken("renewed"))
	w.await("nothing is on trial", func() bool { return w.condition(v1alpha1.PeerAccepted) == "True Accepted" && !w.trying() })
	if w.active().Config().Host != before.Config().Host || !w.member().Synced {
		t.Error("the other server is read")
	}
	if diff := cmp.Diff([]string{"Warning Unreachable"}, w.kinds()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
