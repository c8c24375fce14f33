// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// start serves a text until the test ends, and gives the URL.
func start(t *testing.T, text string) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, listener, target(text)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve ended with %v", err)
		}
	})
	return "http://" + listener.Addr().String()
}

// targets are those of URLs.
func targets(urls ...string) (r Request) {
	for _, url := range urls {
		r.Targets = append(r.Targets, Target{Target: url})
	}
	return r
}

// run runs comity probe.
func run(t *testing.T, request Request) []Result {
	t.Helper()
	in, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	cmd, out := NewCommand(), &bytes.Buffer{}
	cmd.SetIn(bytes.NewReader(in))
	cmd.SetOut(out)
	cmd.SetArgs(nil)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []Result
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestProbeSaysWhoAnswered(t *testing.T) {
	url := start(t, "cluster a")
	got := run(t, targets(url+"/any", url+"/any", url+"/readyz"))
	if len(got) != 3 {
		t.Fatalf("got %+v, want three answers", got)
	}
	for _, a := range got {
		if a.Status != http.StatusOK || a.Body != "cluster a" || "http://"+a.Address != url || a.Error != "" || a.Milliseconds <= 0 {
			t.Errorf("got %+v, want the text of the server", a)
		}
	}
}

func TestProbeUsesOneFamily(t *testing.T) {
	url := start(t, "")
	for family, want := range map[string]string{"IPv4": "", "IPv6": "127.0.0.1", "ipv5": "expected none, IPv4 or IPv6"} {
		if got := run(t, Request{Targets: []Target{{Target: url, Family: family}}})[0]; !strings.Contains(got.Error, want) || (got.Error == "") != (want == "") {
			t.Errorf("over %s got %+v, want %q", family, got, want)
		}
	}
}

func TestNamesAreResolvedAndAddressesConnectedTo(t *testing.T) {
	address := strings.TrimPrefix(start(t, ""), "http://")
	got := run(t, targets("localhost", address, "no-such-host.invalid", unused(t)))
	if len(got[0].Addresses) == 0 || got[0].Error != "" || got[1].Error != "" {
		t.Errorf("got %+v, want that both are well", got[:2])
	}
	check(t, got[2].Error, []string{"cannot resolve no-such-host.invalid"})
	check(t, got[3].Error, []string{"connection refused"})
}

func TestEachRequestHasAConnectionOfItsOwn(t *testing.T) {
	var connections atomic.Int64
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Second,
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				connections.Add(1)
			}
		},
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	url := "http://" + listener.Addr().String()
	got := run(t, targets(url, url, url, url, url))
	if got[4].Status != http.StatusNotFound || got[4].Error == "" {
		t.Fatalf("got %+v, want five answers", got)
	}
	if n := connections.Load(); n != 5 {
		t.Errorf("got %d connections for 5 requests: kube-proxy would choose an endpoint once", n)
	}
}

func TestServeSaysWhenItsPortIsTaken(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	cmd := NewServeCommand()
	cmd.SetArgs([]string{"--port=" + port})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "--port "+port) {
		t.Errorf("got %v, want that the port is taken", err)
	}
}
