// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	"github.com/comity-mcs/comity/sync/model"
)

// isIDDoubtful reports whether this cluster may have been started with the id of
// another one: a Peer has that id, and nothing shows that this cluster published
// under it. What is imported from the other cluster looks like this cluster's own then.
func (b *base) isIDDoubtful(ctx context.Context) bool {
	if _, claimed := b.Peers.OwnIDClaim(); !claimed {
		return false
	}
	if b.hub { // whose cache may never be filled, for which no import waits
		return b.claim.problem(b.member(), b.ClusterUID) != ""
	}
	record, err := b.readMember(ctx)
	return err != nil || record == nil
}

// foreignID says that this cluster was started with the id of another one, which a Peer
// proves; "" if none does. It is for a cluster without a MemberRecord.
func (b *base) foreignID() string {
	claim, claimed := b.Peers.OwnIDClaim()
	if !claimed {
		return ""
	}
	return fmt.Sprintf("Peer %s names another cluster with this cluster's id %s (its kube-system namespace has the UID %s, this one's %s), and this cluster has never published under that id, "+
		"so nothing is published; expected the id of this cluster; remedy: correct the id with which the agent was started (--cluster-id, or ClusterProperty %s), or else delete that Peer",
		claim.Peer, b.Self, claim.ClusterUID, b.ClusterUID, model.LabelClusterID)
}
