// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/notify"
	"github.com/comity-mcs/comity/sync/remote"
)

// definitionInterval is how often it is checked whether Peers are defined, as long as they
// are not, and how soon what failed is repeated.
const definitionInterval = 2 * time.Second

// SetupWithManager makes mgr watch the Peers and their Secrets on every replica, as the
// webhook needs the members too. The manager's cache of Secrets should be restricted to
// Options.Namespace.
func (s *Set) SetupWithManager(mgr ctrl.Manager) error {
	watch := func(ctx context.Context) error { return s.watch(ctx, mgr.GetCache()) }
	return errors.Join(
		mgr.Add(everyReplica(watch)), mgr.Add(everyReplica(s.monitorLiveness)), mgr.Add(everyReplica(s.prober.Start)), mgr.Add(everyReplica(s.closeConnections)),
		mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return s.refreshTokens(ctx, mgr.GetClient()) })))
}

// everyReplica is a Runnable that runs without being elected leader: every replica reads the peers for itself.
type everyReplica func(context.Context) error

// Start implements manager.Runnable.
func (f everyReplica) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everyReplica) NeedLeaderElection() bool { return false }

// watch reads all Peers and Secrets again when one of them changed, until ctx ends: which
// Peers a Secret is that of depends on all of them. It waits until Peers are defined, and
// there are none before; a controller would end, and the process with it, if a definition
// is missing for two minutes. A definition that is deleted later leaves no Peer either.
func (s *Set) watch(ctx context.Context, from cache.Cache) error {
	wake, said := notify.NewWake(), ""
	always := func(any) bool { return true }
	for _, kind := range []client.Object{&corev1.Secret{}, &exchangev1alpha1.Peer{}} {
		_ = wait.PollUntilContextCancel(ctx, definitionInterval, true, func(ctx context.Context) (bool, error) {
			err := wake.Watch(ctx, from, kind, always)
			if apimeta.IsNoMatchError(err) {
				s.use(nil, nil)
			}
			if err != nil && err.Error() != said {
				said = err.Error()
				s.opts.Log.Error(err, "the Peers cannot be watched yet, so that no other cluster is read")
			}
			return err == nil, nil
		}) // its only error is that ctx has ended
	}
	for again := true; again; again = wake.Wait(ctx) {
		var peers exchangev1alpha1.PeerList
		var secrets corev1.SecretList
		err := errors.Join(from.List(ctx, &peers), from.List(ctx, &secrets, client.InNamespace(s.opts.Namespace)))
		switch {
		case err == nil:
			s.use(peers.Items, secrets.Items)
		case ctx.Err() == nil:
			return fmt.Errorf("list Peers and their Secrets: %w", err)
		}
	}
	return nil
}

// refreshEvery is how often the age of each token is checked.
const refreshEvery = time.Minute

// refreshTokens renews the tokens in the Secrets of Peers until ctx ends. A token is renewed for the ServiceAccount
// that it names, the only one for which joining grants that. Only the leader does so, as a
// RunnableFunc: two renewals of one token would be one too many.
func (s *Set) refreshTokens(ctx context.Context, local client.Client) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) { s.refreshAll(ctx, local) }, refreshEvery)
	return nil
}

// refreshAll handles all peers whose token is in use, and no other is being tried,
// concurrently, so that a peer that does not answer delays no other peer's token. It returns
// after a few seconds at the latest, and whatever our own API server takes.
func (s *Set) refreshAll(ctx context.Context, local client.Client) {
	var group sync.WaitGroup
	s.mu.Lock()
	for _, m := range s.members {
		if m.active == nil || m.next != nil || m.claim.refused.Reason != "" {
			continue
		}
		secret := m.claim.secret
		group.Go(func() {
			renewed, err := remote.RenewSecret(ctx, s.opts.Self, secret, local, s.opts.Clock.Now())
			switch {
			case err != nil && ctx.Err() == nil:
				if err.Error() != m.unrenewed {
					s.opts.Log.Error(err, "token not renewed, trying again", "peer", m.id)
				}
				m.unrenewed = err.Error()
			case renewed:
				m.unrenewed = ""
				s.opts.Log.Info("token renewed", "peer", m.id)
			}
		})
	}
	s.mu.Unlock()
	group.Wait()
}
