// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
)

// use makes the members those of these Peers, with these Secrets of Comity's namespace.
func (s *Set) use(peers []exchangev1alpha1.Peer, secrets []corev1.Secret) {
	byName := make(map[string]*corev1.Secret, len(secrets))
	for i := range secrets {
		if secrets[i].DeletionTimestamp == nil {
			byName[secrets[i].Name] = &secrets[i]
		}
	}
	s.mu.Lock()
	next, changed, present := view{}, []model.ClusterID{}, map[model.ClusterID]bool{}
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
		case s.opts.misnamed(peer) != remote.Failure{}:
		case peer.Spec.Removed:
			next.removed = append(next.removed, id)
		default:
			present[id] = true
			if s.useClaim(id, s.opts.readPeer(peer, byName[peer.Spec.KubeconfigSecret])) {
				changed = append(changed, id)
			}
		}
	}
	changed = append(changed, s.drop(present)...)
	slices.Sort(next.removed)
	slices.Sort(next.peers)
	before := s.view.Load()
	changed = append(changed, sets.New(before.removed...).SymmetricDifference(sets.New(next.removed...)).UnsortedList()...)
	if before.ownID != next.ownID {
		changed = append(changed, s.opts.Self)
	}
	s.view.Store(&next)
	s.updateView()
	s.mu.Unlock()
	slices.Sort(changed)
	for _, id := range slices.Compact(changed) {
		s.changes.Publish(model.MemberChange{ID: id})
	}
	for _, name := range next.peers {
		s.statuses.Publish(name)
	}
	s.once.Do(func() { close(s.listed) })
}

// useClaim makes c what the member is known by, and reports whether that changes the
// member. It needs mu.
func (s *Set) useClaim(id model.ClusterID, c claim) (changed bool) {
	m, known := s.members[id]
	if !known {
		m = s.newMember(id)
		s.members[id] = m
	}
	before := m.claim
	m.claim = c
	if known && c.connectsAs(before) {
		return !c.equal(before)
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
	return !known || !c.equal(before)
}

// drop makes what has no Peer no member any more, and returns these clusters. It needs mu.
func (s *Set) drop(present map[model.ClusterID]bool) (gone []model.ClusterID) {
	for id, m := range s.members {
		if present[id] {
			continue
		}
		s.opts.Log.Info("no peer any more", "peer", id)
		s.disconnect(m)
		delete(s.members, id)
		gone = append(gone, id)
	}
	return gone
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
			Changed: s.changed, LeaseRead: s.leaseRead, State: s.stateChanged, Restored: s.restored,
			Rejected: func(*remote.Connection) { m.rejected.Add(1) },
		},
	})
	if err != nil {
		return err
	}
	s.retire(m.next)
	m.next, m.dialed = next, s.opts.Clock.Now()
	return nil
}

// closeConnections waits for the end of ctx, then for the end of everything that Set started.
func (s *Set) closeConnections(ctx context.Context) error {
	<-ctx.Done()
	s.cancel()
	s.mu.Lock()
	for _, m := range s.members {
		s.retire(m.active)
		s.retire(m.next)
	}
	s.mu.Unlock()
	s.ending.Wait()
	return nil
}
