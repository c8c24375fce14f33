// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"maps"
	"slices"
	"sync"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
)

// memberChanges remembers each member as it was, to distinguish a change that may
// concern every key from one of its liveness, which concerns only the imports that
// the member contributes to.
type memberChanges struct {
	mu   sync.Mutex
	last map[model.ClusterID]model.Member
}

func newMemberChanges() *memberChanges {
	return &memberChanges{last: map[model.ClusterID]model.Member{}}
}

// onlyLivenessWorsened reports whether the only change of a member is a worse
// liveness, the reason of one that is known now, or its first heartbeat. Any other change, a heartbeat
// that is back included, may come together with changes of its exports.
func (m *memberChanges) onlyLivenessWorsened(id model.ClusterID, members []model.Member) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, known := m.last[id]
	at := slices.IndexFunc(members, func(member model.Member) bool { return member.ID == id })
	if at < 0 {
		delete(m.last, id)
		return false
	}
	now := members[at]
	m.last[id] = now
	if !known || now.Synced != before.Synced || !maps.Equal(now.Labels, before.Labels) {
		return false
	}
	was, is := before.Liveness, now.Liveness
	if is.State != was.State {
		return is.State > was.State
	}
	return is.Seen != was.Seen || is.Reason != "" && is.Reason != was.Reason
}

// subscribeMembers calls key for changed exports, worse for a member of which only
// the liveness worsened, and all for any other change of a member.
func (b *base) subscribeMembers(key func(notify.Change), all func(), worse func(model.ClusterID)) (cancel func()) {
	changes := newMemberChanges()
	return b.Peers.Subscribe(key, func(id model.ClusterID) {
		if changes.onlyLivenessWorsened(id, b.Peers.Members()) {
			worse(id)
			return
		}
		all()
	})
}

// concerned says which sources a change of only the liveness of a member concerns: the
// first heartbeat concerns those that are down as far as was known without one.
func (b *base) concerned(id model.ClusterID) func(model.Source) bool {
	connected := slices.ContainsFunc(b.Peers.Members(), func(m model.Member) bool { return m.ID == id && m.Liveness.State == model.Connected })
	return func(s model.Source) bool { return s.Down || !connected }
}
