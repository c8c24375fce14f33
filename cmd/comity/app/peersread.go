// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/comity-mcs/comity/sync/model"
)

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
