// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
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
		// Only the leader renews tokens, as a RunnableFunc: two renewals of one token would be one too many.
		mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			wait.UntilWithContext(ctx, func(ctx context.Context) { s.refreshAll(ctx, mgr.GetClient()) }, refreshEvery)
			return nil
		})))
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

// refreshAll renews the tokens in the Secrets of all peers whose token is in use, and no other
// is being tried, and in that of the hub. A token is renewed for the ServiceAccount that it names, the only one for
// which joining grants that. All are renewed at once, so that a peer that does not answer delays
// no other peer's token. It returns after a few seconds at the latest, and whatever our own API
// server takes.
func (s *Set) refreshAll(ctx context.Context, local client.Client) {
	var group sync.WaitGroup
	renew := func(secret *corev1.Secret) {
		renewed, err := remote.RenewSecret(ctx, s.opts.Self, secret, local, s.opts.Clock.Now())
		switch log := s.opts.Log.WithValues("name", secret.Name); {
		case err != nil && ctx.Err() == nil:
			log.Error(err, "token not renewed, trying again")
		case renewed:
			log.Info("token renewed")
		}
	}
	due := map[string]*corev1.Secret{} // several peers have that of the hub
	s.mu.Lock()
	for _, m := range s.members {
		if m.active != nil && m.next == nil && m.claim.refused.Reason == "" {
			due[m.claim.secret.Name] = m.claim.secret
		}
	}
	if s.hub != nil {
		due[s.hub.Name] = s.hub
	}
	s.mu.Unlock()
	for _, secret := range due {
		group.Go(func() { renew(secret) })
	}
	group.Wait()
}

// use makes the members those of these Peers, with these Secrets of Comity's namespace.
func (s *Set) use(peers []exchangev1alpha1.Peer, secrets []corev1.Secret) {
	byName := make(map[string]*corev1.Secret, len(secrets))
	for i := range secrets {
		if secrets[i].DeletionTimestamp == nil {
			byName[secrets[i].Name] = &secrets[i]
		}
	}
	s.mu.Lock()
	s.hub = byName[model.ExchangeSecret]
	next, before, present := view{}, s.view.Load(), sets.New[model.ClusterID]()
	for i := range peers {
		peer, id := &peers[i], model.ClusterID(peers[i].Name)
		if peer.DeletionTimestamp != nil {
			continue
		}
		next.peers = append(next.peers, peer.Name)
		switch {
		case id == s.opts.Self:
			if uid := peer.Spec.ClusterUID; !peer.Spec.Removed && uid != "" && uid != s.opts.ClusterUID {
				next.ownID = uid
			}
		case peer.Spec.Removed:
			next.removed = append(next.removed, id)
		default:
			present.Insert(id)
			s.useClaim(id, s.opts.readPeer(peer, byName[peer.Spec.KubeconfigSecret]))
		}
	}
	for id, m := range s.members {
		if !present.Has(id) {
			s.opts.Log.Info("no peer any more", "peer", id)
			s.disconnect(m)
			delete(s.members, id)
		}
	}
	slices.Sort(next.removed)
	s.updateView(next)
	changed := s.view.Load().changedFrom(before)
	if before.ownID != next.ownID {
		changed.Insert(s.opts.Self)
	}
	s.mu.Unlock()
	for _, id := range sets.List(changed) {
		s.changes.Publish(model.MemberChange{ID: id})
	}
	for _, name := range next.peers {
		s.statuses.Publish(name)
	}
	s.once.Do(func() { close(s.listed) })
}

// changedFrom are the clusters that are another member than before, or began or ceased to be
// one or a removed one.
func (v *view) changedFrom(before *view) sets.Set[model.ClusterID] {
	changed, was := sets.New(before.removed...).SymmetricDifference(sets.New(v.removed...)), map[model.ClusterID]snapshot{}
	for _, m := range before.members {
		was[m.ID] = m
	}
	for _, m := range v.members {
		if !reflect.DeepEqual(m.Member, was[m.ID].Member) || !reflect.DeepEqual(m.accepted, was[m.ID].accepted) {
			changed.Insert(m.ID)
		}
		delete(was, m.ID)
	}
	return changed.Union(sets.KeySet(was))
}

// useClaim makes c what the member is known by. It needs mu.
func (s *Set) useClaim(id model.ClusterID, c claim) {
	m, known := s.members[id]
	if !known {
		m = &member{id: id, heartbeat: newHeartbeat(s.opts.LostAfter, s.opts.Clock.Now())}
		s.members[id] = m
	}
	before := m.claim
	m.claim = c
	if known && c.connectsAs(before) {
		return
	}
	if c.unusable() || !c.isOfSameCluster(before) {
		s.disconnect(m)
	}
	if !c.isOfSameCluster(before) {
		m.probes = probes{}
	}
	if c.config != nil { // the present connection stays until the new one is synced
		if err := s.dial(m, c.config); err != nil {
			m.claim.config, m.claim.refused = nil, remote.Failure{Reason: ReasonInvalidKubeconfig, Message: err.Error()}
		} else {
			s.opts.Log.Info("connecting to peer", "peer", id)
		}
	}
}

// disconnect ends the connections of m.
func (s *Set) disconnect(m *member) {
	s.retire(m.active)
	s.retire(m.next)
	m.active, m.next = nil, nil
}

// dial makes a connection that replaces the one in use once it is synced.
func (s *Set) dial(m *member, config *rest.Config) error {
	next, err := s.connect(s.ctx, remote.Options{
		ID: m.id, Self: s.opts.Self, ClusterSet: s.opts.ClusterSet, ClusterUID: m.claim.peer.Spec.ClusterUID, Config: config, Log: s.opts.Log,
		Hooks: remote.Hooks{
			Changed: s.changes.Publish, LeaseRead: s.leaseRead, State: s.stateChanged, Restored: s.restored,
			Rejected: func() { m.rejected.Add(1) },
		},
	})
	if err != nil {
		return err
	}
	s.retire(m.next)
	m.next = next
	return nil
}

// closeConnections waits for the end of ctx, then for the end of everything that Set started.
func (s *Set) closeConnections(ctx context.Context) error {
	<-ctx.Done()
	s.cancel()
	s.mu.Lock()
	for _, m := range s.members {
		s.disconnect(m)
	}
	s.mu.Unlock()
	s.ending.Wait()
	return nil
}
