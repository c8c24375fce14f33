// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/restoredetect"
)

// peer is the API server of cluster b. It counts requests and accepts some tokens.
type peer struct {
	mu       sync.Mutex
	version  int
	accepted map[string]bool
	lists    map[string]int // by token
	watches  map[string]int // by token
	open     map[string]chan string
	// answer answers a request in place of this peer, if it is true.
	answer func(w http.ResponseWriter, path string, watch bool) bool
}

func (p *peer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	_, path, _ := strings.Cut(r.URL.Path, "/namespaces/")
	query := r.URL.Query()
	p.mu.Lock()
	accepted, version, events := p.accepted[token], fmt.Sprint(p.version), make(chan string, 10)
	switch {
	case !accepted || query.Get("sendInitialEvents") != "":
	case query.Get("watch") != "":
		p.watches[token]++
		p.open[path] = events
	case query.Get("limit") != "1": // which asks for the version of the store
		p.lists[token]++
	}
	answer := p.answer
	p.mu.Unlock()
	switch {
	case answer != nil && query.Get("sendInitialEvents") == "" && query.Get("limit") != "1" && answer(w, path, query.Get("watch") != ""):
	case !accepted:
		status(w, 401, "Unauthorized")
	case query.Get("sendInitialEvents") != "":
		status(w, 422, "Invalid")
	case query.Get("watch") == "":
		items := []any{}
		if strings.HasSuffix(path, "/memberrecords") {
			items = append(items, memberB())
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]string{"resourceVersion": version}, "items": items})
	default:
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		for {
			select {
			case line, is := <-events:
				if !is {
					return
				}
				_, _ = fmt.Fprintln(w, line)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}
}

func memberB() *exchangev1alpha1.MemberRecord {
	record := &exchangev1alpha1.MemberRecord{Spec: exchangev1alpha1.MemberRecordSpec{ClusterID: "b", ClusterSet: "prod", ClusterUID: "uid-b"}}
	record.Namespace, record.Name, record.ResourceVersion = "comity-b", "b", "9"
	return record
}

// change runs f while no request is answered.
func (p *peer) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *peer) counts() (lists, watches map[string]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.lists), maps.Clone(p.watches)
}

// endWatch ends one watch as API servers do every few minutes.
func (p *peer) endWatch(path string) {
	p.change(func() { close(p.open[path]) })
}

const (
	feedsOfAPeer  = 8
	namespacesOfB = "comity-b/namespacerecords"
)

// reading is a Connection to p with token one of which every watch is open, and
// the names of the namespaces that it was notified of.
func reading(t *testing.T) (*peer, *Connection, func(token string) *rest.Config, <-chan string) {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	p := &peer{version: 10, accepted: map[string]bool{"one": true}, lists: map[string]int{}, watches: map[string]int{}, open: map[string]chan string{}}
	server, ca := apiServer(t, p.ServeHTTP)
	with := func(token string) *rest.Config {
		return &rest.Config{Host: server.URL, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	}
	namespaces := make(chan string, 10)
	c, err := Connect(context.Background(), Options{ID: "b", Self: "a", ClusterSet: "prod", Config: with("one"), Log: logr.Discard(), Hooks: Hooks{
		Invalid: func(*Connection) {}, Export: func(*Connection, types.NamespacedName) {},
		Slices: func(*Connection, types.NamespacedName, int) {}, Namespace: func(name string) { namespaces <- name }, Report: func(types.NamespacedName) {},
		LeaseRead: func(*Connection, string) {}, State: func(*Connection) {}, Rejected: func(*Connection, error) {},
		Restored: func(*Connection, *restoredetect.Found) {},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Stop()
		c.Wait()
		server.CloseClientConnections()
		server.Close()
		goleak.VerifyNone(t, leaks)
	})
	await(t, "everything is watched", func() bool {
		_, watches := p.counts()
		return c.Verified() && watches["one"] == feedsOfAPeer
	})
	return p, c, with, namespaces
}

func await(t *testing.T, what string, met func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !met(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 30 s: %s", what)
		}
	}
}

// delivers fails the test unless the watch of namespaces that is open now delivers.
func (p *peer) delivers(t *testing.T, name string, namespaces <-chan string) {
	t.Helper()
	p.change(func() { p.version++ })
	record := exchangev1alpha1.NamespaceRecord{
		TypeMeta:   metav1.TypeMeta{APIVersion: exchangev1alpha1.GroupVersion.String(), Kind: "NamespaceRecord"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "comity-b", Name: name, ResourceVersion: fmt.Sprint(p.version)},
	}
	object, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	p.change(func() { p.open[namespacesOfB] <- fmt.Sprintf(`{"type":"ADDED","object":%s}`, object) })
	select {
	case got := <-namespaces:
		if got != name {
			t.Errorf("got namespace %q, want %q", got, name)
		}
	case <-time.After(20 * time.Second):
		t.Error("the watch delivers nothing")
	}
}

func TestARenewedTokenIsUsedByTheNextRequestAndRestartsNoWatch(t *testing.T) {
	p, c, with, namespaces := reading(t)
	listsBefore, _ := p.counts()
	p.change(func() { p.accepted["two"] = true })
	if !c.Renew(with("two")) {
		t.Fatal("another token takes a new connection")
	}
	await(t, "the token is in use", func() bool { return !c.Renewing() })
	lists, watches := p.counts()
	if diff := cmp.Diff(map[string]int{"one": listsBefore["one"], "two": 1}, lists); diff != "" {
		t.Errorf("lists; one is to try the token (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"one": feedsOfAPeer}, watches); diff != "" {
		t.Errorf("watches (-want +got):\n%s", diff)
	}
	p.delivers(t, "shop", namespaces)
	p.change(func() { p.accepted["one"] = false })
	p.endWatch(namespacesOfB)
	await(t, "the watch goes on with the new token", func() bool {
		_, watches := p.counts()
		return watches["two"] == 1
	})
	p.delivers(t, "bank", namespaces)
	if lists, _ := p.counts(); lists["one"] != listsBefore["one"] || lists["two"] != 1 {
		t.Errorf("a watch that goes on listed again: %v", lists)
	}
	if c.Config().BearerToken != "two" {
		t.Error("the configuration holds the old token")
	}
}

func TestATokenThatThePeerRefusesIsNotUsedAndIsReported(t *testing.T) {
	p, c, with, namespaces := reading(t)
	if !c.Renew(with("bad")) {
		t.Fatal("another token takes a new connection")
	}
	await(t, "it is reported", func() bool {
		problem, verified := c.State()
		return c.Untried().Reason == ReasonUnauthorized && verified && problem == Failure{}
	})
	if !c.Renewing() {
		t.Error("the token passes for the one in use")
	}
	p.delivers(t, "shop", namespaces)
	p.endWatch(namespacesOfB)
	await(t, "the watch goes on with the old token", func() bool {
		_, watches := p.counts()
		return watches["one"] == feedsOfAPeer+1
	})
	p.delivers(t, "bank", namespaces)
	if c.Untried().Reason != ReasonUnauthorized {
		t.Errorf("got %+v", c.Untried())
	}
	p.change(func() { p.accepted["good"] = true })
	c.Renew(with("good"))
	await(t, "a better token ends it", func() bool { return c.Untried() == Failure{} && !c.Renewing() })
}

// An informer that failed waits for up to a minute before it tries again, and a new
// connection tries at once.
func TestAConnectionThatCannotReadIsReplacedByOneWithTheNewToken(t *testing.T) {
	p, c, with, _ := reading(t)
	p.change(func() { p.accepted["one"] = false })
	p.endWatch(namespacesOfB)
	await(t, "the revoked token is reported", func() bool { problem, _ := c.State(); return problem.Reason == ReasonUnauthorized })
	p.change(func() { p.accepted["two"] = true })
	if c.Renew(with("two")) || c.Renewing() {
		t.Error("the connection keeps what it cannot read until its informers try again")
	}
}

func TestOnlyATokenIsRenewedInPlace(t *testing.T) {
	_, c, with, _ := reading(t)
	for name, change := range map[string]func(*rest.Config){
		"another server":         func(config *rest.Config) { config.Host = "https://127.0.0.1:1" },
		"another authority":      func(config *rest.Config) { config.CAData = nil },
		"a client certificate":   func(config *rest.Config) { config.CertData = []byte("certificate") },
		"another name to verify": func(config *rest.Config) { config.ServerName = "b" },
	} {
		config := with("two")
		change(config)
		if c.Renew(config) {
			t.Errorf("%s was taken over by the connection that there is", name)
		}
	}
	if c.Renewing() {
		t.Error("a token is on trial")
	}
}
