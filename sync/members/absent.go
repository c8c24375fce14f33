// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
)

// Reasons of events about members without a Secret.
const (
	// ReasonPeerSecretMissing: the Secret of a peer was deleted, and not as kubectl
	// comity leave does it.
	ReasonPeerSecretMissing = "PeerSecretMissing"
	// ReasonPeerRemoved: the Secret was not created again in time.
	ReasonPeerRemoved = "PeerRemoved"
	// ReasonPeerSecretFound: the Secret was created again in time.
	ReasonPeerSecretFound = "PeerSecretFound"
)

// mark is a Secret with AnnotationLeaving.
type mark struct{ name, id string }

// observe notes whether a Secret is marked as leaving, at each event about it: the
// Secret may be gone before it is reconciled.
func (s *Set) observe(_ context.Context, secret *corev1.Secret) []reconcile.Request {
	s.mu.Lock()
	if secret.Annotations[model.AnnotationLeaving] == "true" {
		s.marks[secret.UID] = mark{secret.Name, secret.Labels[model.LabelClusterID]}
	} else {
		delete(s.marks, secret.UID)
	}
	s.mu.Unlock()
	return []reconcile.Request{s.request()}
}

// request is the only one: all Secrets are reconciled together, because which of
// two duplicates is used depends on both.
func (s *Set) request() reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: s.opts.Namespace}}
}

// marked reports whether one of these marks is that of m, whose Secret is gone.
func marked(m *member, marks map[types.UID]mark) bool {
	if _, own := marks[m.secret.UID]; own {
		return true
	}
	for _, of := range marks {
		if of.id == string(m.id) || of.name == model.PeerName(m.id) {
			return true
		}
	}
	return false
}

// removeAbsent removes the members that have no Secret any more, if that was marked
// as leaving. The others are kept for DeletionHold, unsynced, because deleting a
// Secret may have been a slip.
func (s *Set) removeAbsent(claimed map[model.ClusterID]bool, marks map[types.UID]mark, after *followUp) {
	now := s.opts.Clock.Now()
	var absent []*member
	for _, id := range slices.Sorted(maps.Keys(s.members)) {
		m := s.members[id]
		switch {
		case claimed[id]:
		case marked(m, marks):
			s.remove(m, after)
		case m.absent.IsZero():
			m.absent = now
			absent = append(absent, m)
			after.members = append(after.members, id)
		}
	}
	if s.awaitOwner(now) {
		return
	}
	for _, m := range absent {
		s.becomeAbsent(m, now)
	}
}

// ownerUnknown says which Secret may be that of a member without one, with a wrong
// label; empty if none may. Until that is known, no such member is removed. A Secret
// that is used for a cluster may be, unless something is imported from that cluster, or
// was read through the Secret.
func (s *Set) ownerUnknown() string {
	if s.unidentified != "" {
		return fmt.Sprintf("Secret %s is refused", s.unidentified)
	}
	for _, id := range slices.Sorted(maps.Keys(s.members)) {
		if m := s.members[id]; m.absent.IsZero() && !m.known {
			return fmt.Sprintf("nothing was read through Secret %s/%s, whose label %s is %q", m.secret.Namespace, m.secret.Name, model.LabelClusterID, id)
		}
	}
	return ""
}

// awaitOwner begins the time of all members without a Secret, and reports true, if
// ownerUnknown changed: until then the time did not pass.
func (s *Set) awaitOwner(now time.Time) bool {
	awaited := s.ownerUnknown()
	if awaited == s.awaited {
		return false
	}
	s.awaited = awaited
	for _, id := range slices.Sorted(maps.Keys(s.members)) {
		if m := s.members[id]; !m.absent.IsZero() {
			s.becomeAbsent(m, now)
		}
	}
	return true
}

// addAbsent makes members of the clusters of which something is imported here and
// that no Secret names: their Secrets were deleted while this process did not run.
// removeAbsent finds them absent.
func (s *Set) addAbsent(claimed map[model.ClusterID]bool, imported map[model.ClusterID][]types.NamespacedName) {
	for id, keys := range imported {
		if _, err := model.ParseClusterID(string(id)); err != nil || claimed[id] || id == s.opts.Self || s.members[id] != nil {
			continue
		}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.opts.Namespace, Name: model.PeerName(id)}}
		m := s.newMember(claim{id: id, secret: secret})
		m.guard.Present(keys...)
		m.known = true
		s.members[id] = m
	}
}

// becomeAbsent keeps m as a member that is not read. Its liveness stays as it is.
func (s *Set) becomeAbsent(m *member, now time.Time) {
	m.absent = now
	kept, remedy := "until "+now.Add(s.opts.DeletionHold).UTC().Truncate(time.Second).Format(time.RFC3339), ""
	if s.awaited != "" {
		kept = fmt.Sprintf("as long as another Secret may be the one, with a wrong label (%s), and for %s after that", s.awaited, s.opts.DeletionHold)
		remedy = "correct the label of that Secret, or "
	}
	message := fmt.Sprintf("Secret %s/%s, through which cluster %s is read, is missing, and its removal was not marked; expected it to exist, or to be removed with kubectl comity leave; "+
		"what was imported from cluster %s is kept %s, then removed; remedy: %screate the Secret again, as with kubectl comity join, or remove the peer at once with kubectl comity leave",
		m.secret.Namespace, m.secret.Name, m.id, m.id, kept, remedy)
	s.disconnect(m, remote.Failure{Reason: ReasonPeerSecretMissing, Message: message})
	s.opts.Log.Info("the Secret of a peer is missing", "cluster", m.id, "reason", ReasonPeerSecretMissing, "message", message)
	s.absenceEvent(m, corev1.EventTypeWarning, ReasonPeerSecretMissing, message)
}

// found ends the absence of m, whose Secret exists.
func (s *Set) found(m *member) {
	if m.absent.IsZero() {
		return
	}
	m.absent = time.Time{}
	s.absenceEvent(m, corev1.EventTypeNormal, ReasonPeerSecretFound, fmt.Sprintf("a Secret for cluster %s exists again", m.id))
}

// expireAbsent removes m if its Secret is missing for DeletionHold. While another Secret
// may be that of m, the time does not end.
func (s *Set) expireAbsent(m *member, now time.Time, after *followUp) {
	if m.absent.IsZero() || s.awaited != "" || now.Sub(m.absent) < s.opts.DeletionHold {
		return
	}
	s.remove(m, after)
	s.absenceEvent(m, corev1.EventTypeNormal, ReasonPeerRemoved, fmt.Sprintf("Secret %s/%s was missing for %s: cluster %s is no longer a peer, and what was imported from it is removed",
		m.secret.Namespace, m.secret.Name, s.opts.DeletionHold, m.id))
}

// remove makes m no member any more.
func (s *Set) remove(m *member, after *followUp) {
	s.opts.Log.Info("peer removed", "cluster", m.id)
	s.retire(m.active)
	s.retire(m.next)
	s.metrics.forget(m.id)
	delete(s.members, m.id)
	delete(s.pending, absence(m.id))
	after.members = append(after.members, m.id)
}

// disconnect ends the connections of m, which is not read as long as why holds.
func (s *Set) disconnect(m *member, why remote.Failure) {
	s.retire(m.active)
	s.retire(m.next)
	m.active, m.next, m.readable = nil, nil, false
	m.refused, m.reported = why, why
	m.heartbeat.unseen = time.Time{}
}

// absenceEvent writes an event about Comity's Namespace, since the Secret is gone.
func (s *Set) absenceEvent(m *member, kind, reason, message string) {
	// With its own name as namespace, so that the event is among those of that
	// namespace rather than in the default one.
	namespace := &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Namespace: s.opts.Namespace, Name: s.opts.Namespace},
	}
	s.post(absence(m.id), pendingEvent{namespace, "", kind, reason, message})
}

// absence is the topic of events about the missing Secret of a member.
func absence(id model.ClusterID) topic { return topic{about: "absence/" + string(id)} }
