// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"maps"
	"slices"
	"sync"

	"github.com/comity-mcs/comity/sync/model"
)

// Members knows how each member was when it was last told of, so as to tell a
// change that concerns everything from one that concerns only what the member
// contributes to.
type Members struct {
	mu   sync.Mutex
	last map[model.ClusterID]model.Member
}

// NewMembers returns Members of which none was told.
func NewMembers() *Members { return &Members{last: map[model.ClusterID]model.Member{}} }

// LostSight reports whether all that is new of a member is that less is heard
// of it than before, or that it is known why: nothing that it shares was read
// anew, none is missing, and no scope selects it otherwise. Anything else, a
// member that is heard of again included, may come with any change at all.
func (m *Members) LostSight(id model.ClusterID, members []model.Member) bool {
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
	if !known || now.Synced != before.Synced || !maps.Equal(now.Properties, before.Properties) {
		return false
	}
	return now.Liveness.State > before.Liveness.State ||
		now.Liveness.State == before.Liveness.State && now.Liveness.Reason != "" && now.Liveness.Reason != before.Liveness.Reason
}
