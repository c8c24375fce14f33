// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"encoding/json"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Drains are those of a cluster: what its Peer says, and what the cluster says of itself, if
// the Peer lets it: the value of annotation comity.dev/drained of its MemberRecord. A text
// that cannot be read drains nothing.
func Drains(peer *exchangev1alpha1.PeerSpec, self string) (out []model.Drain) {
	add := func(d *exchangev1alpha1.Drained, self bool) {
		out = append(out, model.Drain{Since: d.Since.Time, Over: d.Over.Duration, Force: d.Force, Self: self})
	}
	if peer.Drained != nil {
		add(peer.Drained, false)
	}
	var itself exchangev1alpha1.Drained
	if !peer.IgnoreDrain && json.Unmarshal([]byte(self), &itself) == nil {
		add(&itself, true)
	}
	return out
}
