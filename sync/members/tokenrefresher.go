// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
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
		k.refreshAll(ctx, k.readable())
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// refreshAll handles all peers concurrently, so that a peer that does not
// answer delays no other peer's token. It returns after remote.RenewTimeout at the latest,
// and whatever our own API server takes.
func (k *tokenRefresher) refreshAll(ctx context.Context, peers []readable) {
	var group sync.WaitGroup
	for _, m := range peers {
		group.Go(func() {
			if err := k.renew(ctx, m.connection, m.secret, k.set.opts.Clock.Now()); err != nil && ctx.Err() == nil {
				k.set.opts.Log.Info("token not renewed, trying again", "cluster", m.connection.ID(), "reason", err.Error())
			}
		})
	}
	group.Wait()
}

type readable struct {
	connection *remote.Connection
	secret     *corev1.Secret
}

// readable are the peers whose token is in use, and not one that is being tried.
func (k *tokenRefresher) readable() (out []readable) {
	k.set.mu.Lock()
	defer k.set.mu.Unlock()
	for _, m := range k.set.members {
		if m.active != nil && m.next == nil && m.claim.refused.Reason == "" && !m.active.Renewing() {
			out = append(out, readable{m.active.Connection, m.claim.secret})
		}
	}
	return out
}

func (k *tokenRefresher) renew(ctx context.Context, c *remote.Connection, secret *corev1.Secret, now time.Time) error {
	config, httpClient := c.Client()
	renewed, err := remote.RenewSecret(ctx, config, httpClient, secret, now)
	if err != nil {
		return fmt.Errorf("cluster %s: %w", c.ID(), err)
	}
	if renewed == nil {
		return nil
	}
	// With the resource version, so that a Secret that join wrote meanwhile is not overwritten.
	if err := k.client.Patch(ctx, renewed, client.MergeFromWithOptions(secret, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	k.set.opts.Log.Info("token renewed", "cluster", c.ID())
	return nil
}
