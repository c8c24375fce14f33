// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/remote"
)

// refreshEvery is how often the age of each token is checked.
const refreshEvery = time.Minute

// tokenRefresher renews the tokens in the Secrets of Peers. A token is renewed for the ServiceAccount that it names,
// the only one for which joining grants that.
type tokenRefresher struct {
	set    *Set
	client client.Client
}

// NeedLeaderElection is true: two renewals of one token would be one too many.
func (*tokenRefresher) NeedLeaderElection() bool { return true }

// Start checks all of them every refreshEvery until ctx ends.
func (k *tokenRefresher) Start(ctx context.Context) error {
	ticker := k.set.opts.Clock.NewTicker(refreshEvery)
	defer ticker.Stop()
	for {
		k.refreshAll(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// refreshAll handles all peers whose token is in use, and no other is being tried,
// concurrently, so that a peer that does not answer delays no other peer's token. It returns
// after a few seconds at the latest, and whatever our own API server takes.
func (k *tokenRefresher) refreshAll(ctx context.Context) {
	var group sync.WaitGroup
	k.set.mu.Lock()
	for _, m := range k.set.members {
		if m.active == nil || m.next != nil || m.claim.refused.Reason != "" {
			continue
		}
		secret := m.claim.secret
		group.Go(func() {
			renewed, err := remote.RenewSecret(ctx, k.set.opts.Self, secret, k.client, k.set.opts.Clock.Now())
			switch {
			case err != nil && ctx.Err() == nil:
				k.set.opts.Log.Info("token not renewed, trying again", "cluster", m.id, "reason", err.Error())
			case renewed:
				k.set.opts.Log.Info("token renewed", "cluster", m.id)
			}
		})
	}
	k.set.mu.Unlock()
	group.Wait()
}
