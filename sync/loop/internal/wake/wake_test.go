// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package wake

import (
	"context"
	"testing"
	"time"
)

// Without this a restart called every export pending until the policies were
// loaded, and exported again a moment later: two writes and two events for each.
func TestNoWorkerStartsBeforeAllThatItsSourceNeedsIsThere(t *testing.T) {
	peers, policies := make(chan struct{}), make(chan struct{})
	w := &Keys{Ready: []<-chan struct{}{peers, nil, policies}}
	synced := make(chan error, 1)
	go func() { synced <- w.WaitForSync(t.Context()) }()
	for _, one := range []chan struct{}{policies, peers} {
		select {
		case err := <-synced:
			t.Fatalf("got %v, want it to wait for both", err)
		case <-time.After(20 * time.Millisecond):
		}
		close(one)
	}
	select {
	case err := <-synced:
		if err != nil {
			t.Errorf("got error %v once both are there", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("still waits once both are there")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (&Keys{Ready: []<-chan struct{}{make(chan struct{})}}).WaitForSync(ended); err == nil {
		t.Error("got no error from a wait that was given up")
	}
}
