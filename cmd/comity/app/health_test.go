// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// ask gives status code and body.
func ask(t *testing.T, url string) (int, string) {
	t.Helper()
	client := &http.Client{Timeout: 5 * time.Second}
	var last error
	for range 1000 { // until it listens
		response, err := client.Get(url)
		if err != nil {
			last = err
			time.Sleep(10 * time.Millisecond)
			continue
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, strings.TrimSpace(string(body))
	}
	t.Fatal(last)
	return 0, ""
}

func TestHealthIsThereFromTheStartAndReadinessSaysWhyNot(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	h := &health{undefined: errors.New("the first reason")}
	var second error
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.serve(ctx, address) }()

	for _, step := range []struct {
		name   string
		change func()
		code   int
		body   string
	}{
		{"the reason is told", func() {}, http.StatusServiceUnavailable, "not ready: the first reason"},
		{"without checks it starts", func() { h.set(nil) }, http.StatusServiceUnavailable, "not ready: starting"},
		{"a check counts", func() { second = errors.New("the second reason"); h.started(func() error { return second }) }, http.StatusServiceUnavailable, "not ready: the second reason"},
		{"with no reason left it is ready", func() { second = nil }, http.StatusOK, "ok"},
		{"it may stop being ready", func() { h.set(errors.New("again")) }, http.StatusServiceUnavailable, "not ready: again"},
	} {
		step.change()
		if code, body := ask(t, "http://"+address+"/readyz"); code != step.code || body != step.body {
			t.Errorf("%s: /readyz answers %d %q, want %d %q", step.name, code, body, step.code, step.body)
		}
		if code, body := ask(t, "http://"+address+"/healthz"); code != http.StatusOK || body != "ok" {
			t.Errorf("%s: /healthz answers %d %q, want 200 ok: a restart would not help", step.name, code, body)
		}
	}
	if code, _ := ask(t, "http://"+address+"/"); code != http.StatusNotFound {
		t.Errorf("/ answers %d, want 404", code)
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("got error %v after a requested stop", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("still serves after its context ended")
	}
}

func TestAnAddressThatCannotBeServedIsAnErrorAtOnce(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for _, address := range []string{taken.Addr().String(), "localhost", ":70000"} {
		err := (&health{}).serve(t.Context(), address)
		if err == nil || !strings.Contains(err.Error(), "--health-probe-bind-address") || !strings.Contains(err.Error(), strings.TrimPrefix(address, ":")) {
			t.Errorf("got %v, want an error that names the flag and %s", err, address)
		}
	}
}
