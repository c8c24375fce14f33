// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/comity-mcs/comity/cmd/comity/probe"
	"github.com/comity-mcs/comity/sync/model"
)

// health serves /healthz and /readyz from the start of the process. A process that
// waits for a CRD is alive and not ready, with the reason in the response, so the
// kubelet does not restart it.
type health struct {
	mu sync.Mutex
	// state is why the process is not ready, whatever the checks say; nil if they decide.
	state  error
	checks []func() error
}

// set replaces the state.
func (h *health) set(state error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = state
}

// require adds a check to readiness.
func (h *health) require(check func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = append(h.checks, check)
}

// notReady returns the state, or the error of the first check that fails; nil if none does.
func (h *health) notReady() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != nil {
		return h.state
	}
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

// knownPeers is what readiness needs of members.Set.
type knownPeers interface {
	// Listed is closed once the Peers present at start were read.
	Listed() <-chan struct{}
	Members() []model.Member
}

// peersRead is a check for readiness: nil once every peer was read, or this time after
// this call, and from then on. Before that a policy would see
// the namespaces of peers as unknown and pass them over, where a replica that runs
// for longer refuses.
func peersRead(peers knownPeers, clk clock.PassiveClock, within time.Duration) func() error {
	start := clk.Now()
	var done atomic.Bool // a peer that joins later, or stops responding, changes nothing
	return func() error {
		if done.Load() {
			return nil
		}
		var err error
		select {
		case <-peers.Listed():
			err = notRead(peers.Members())
		default:
			err = errors.New("the Peers are not read yet")
		}
		if left := within - clk.Since(start); err != nil && left > 0 {
			return fmt.Errorf("%w; waiting for at most %s more", err, left.Round(time.Second))
		}
		done.Store(true)
		return nil
	}
}

// notRead names the members that were not read since the process started; nil if
// all were.
func notRead(members []model.Member) error {
	var missing []string
	for _, member := range members {
		if !member.Synced {
			missing = append(missing, string(member.ID))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("peers are not read yet: %s", strings.Join(missing, ", "))
}
