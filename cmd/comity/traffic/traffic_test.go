// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package traffic

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
	go func() { ended <- serve(ctx, listener, text) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve ended with %v", err)
		}
	})
	return "http://" + listener.Addr().String()
}

// run runs comity fetch.
func run(t *testing.T, args ...string) (Fetched, error) {
	t.Helper()
	cmd, out := NewFetchCommand(), &bytes.Buffer{}
	cmd.SetOut(out)
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		return Fetched{}, err
	}
	var got Fetched
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	return got, nil
}

func TestFetchPrintsWhoAnswered(t *testing.T) {
	url := start(t, "cluster a")
	got, err := run(t, "--count=3", url+"/any")
	if err != nil {
		t.Fatal(err)
	}
	if got.URL != url+"/any" || len(got.Answers) != 3 {
		t.Fatalf("got %+v, want three answers", got)
	}
	for _, a := range got.Answers {
		if a.Status != http.StatusOK || a.Body != "cluster a" || "http://"+a.Address != url || a.Error != "" || a.Milliseconds <= 0 {
			t.Errorf("got %+v, want the text of the server", a)
		}
	}
	if got, err = run(t, url+"/readyz"); err != nil || got.Answers[0].Body != "ok" {
		t.Errorf("of /readyz got %+v and %v, want ok", got, err)
	}
}

func TestFetchSaysWhyThereIsNoAnswer(t *testing.T) {
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	gone := start(t, "")
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"a server that never answers", []string{"--timeout=50ms", "http://" + silent.Addr().String()}, "timed out"},
		{"a name that does not resolve", []string{"http://no-such-host.invalid"}, "cannot resolve no-such-host.invalid"},
		{"an address of the other family", []string{"--family=ipv6", gone}, "127.0.0.1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := run(t, tc.args...)
			if err != nil {
				t.Fatal(err)
			}
			if a := got.Answers[0]; a.Status != 0 || !strings.Contains(a.Error, tc.want) {
				t.Errorf("got %+v, want an error that says %q", a, tc.want)
			}
		})
	}
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
	got, err := run(t, "--count=5", "http://"+listener.Addr().String())
	if err != nil || len(got.Answers) != 5 || got.Answers[4].Status != http.StatusNotFound {
		t.Fatalf("got %+v and %v, want five answers", got, err)
	}
	if n := connections.Load(); n != 5 {
		t.Errorf("got %d connections for 5 requests: kube-proxy would choose an endpoint once", n)
	}
}

func TestFetchRefusesFlagsThatCannotWork(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, "expected one URL"},
		{[]string{"http://a", "http://b"}, "expected one URL"},
		{[]string{"web.shop"}, "not a URL"},
		{[]string{"ftp://web.shop"}, "not a URL"},
		{[]string{"--count=0", "http://a"}, "--count"},
		{[]string{"--timeout=0s", "http://a"}, "--timeout"},
		{[]string{"--family=ipv5", "http://a"}, "any, ipv4 or ipv6"},
	} {
		if _, err := run(t, tc.args...); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("of %v got %v, want %q", tc.args, err, tc.want)
		}
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
