// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/comity-mcs/comity/cmd/comity/probe"
)

// health serves /healthz and /readyz from the start of the process. A process that
// waits for a CRD is alive and not ready, with the reason in the response, so the
// kubelet does not restart it.
type health struct {
	mu     sync.Mutex
	checks []func() error
}

// require adds a check to readiness.
func (h *health) require(check func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = append(h.checks, check)
}

// notReady returns the error of the first check that fails, nil if none does.
func (h *health) notReady() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, check := range h.checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// serve listens on address until ctx ends.
func (h *health) serve(ctx context.Context, address string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("serve /healthz and /readyz: %w", err)
	}
	mux := http.NewServeMux()
	// A client that closed the connection needs no response.
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := h.notReady(); err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	return probe.Serve(ctx, listener, mux)
}

// cell holds an error for concurrent use.
type cell struct{ held atomic.Pointer[error] }

func newCell(err error) *cell {
	c := &cell{}
	c.set(err)
	return c
}

func (c *cell) set(err error) { c.held.Store(&err) }

func (c *cell) get() error { return *c.held.Load() }
