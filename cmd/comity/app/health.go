// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
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
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := h.notReady(); err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		answer(w)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		// A response to a probe takes much less than a second.
		stop, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = server.Shutdown(stop)
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// answer writes ok. A client that closed the connection needs no response.
func answer(w http.ResponseWriter) { _, _ = fmt.Fprintln(w, "ok") }

// cell holds an error for concurrent use.
type cell struct {
	mu  sync.Mutex
	err error
}

func newCell(err error) *cell { return &cell{err: err} }

func (c *cell) set(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *cell) get() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
