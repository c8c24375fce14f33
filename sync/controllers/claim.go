// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// claim is who holds the place of this cluster's id in the exchange: the cluster that
// created the Lease there. A create succeeds once, so of two clusters with one id
// that join an empty hub at the same moment, one at most holds the place. A record
// cannot show that: both apply it as the same field manager, and both succeed.
//
// In a hub nothing is published before the place is held. While it is held, everything in
// the exchange namespaces is this cluster's own, however it came back there. The zero value
// is a place of which the holder is not known.
type claim struct {
	mu     sync.Mutex
	holder types.UID // of the kube-system namespace; empty: not known
}

// set records the holder. It reports whether that is a change.
func (c *claim) set(holder types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := c.holder != holder
	c.holder = holder
	return changed
}

// isHeldBy reports whether the cluster with this UID holds the place.
func (c *claim) isHeldBy(self types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return self != "" && c.holder == self
}

// isKnown reports whether the Lease was read or created.
func (c *claim) isKnown() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.holder != ""
}

// problem is why self, which has the Lease in the hub, may not publish; "" if it may.
func (c *claim) problem(lease types.NamespacedName, self types.UID) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.holder {
	case self:
		return ""
	case "":
		return fmt.Sprintf("Lease %s in the hub is not held by this cluster yet, so nothing is published; if this stays, see the log", lease)
	}
	return fmt.Sprintf("Lease %s in the hub is of another cluster with this cluster's id %s (its kube-system namespace has the UID %s, this one's %s), "+
		"so nothing is published; give one of the two another id, or delete the Lease and the MemberRecord of that name if that cluster is gone",
		lease, lease.Name, c.holder, self)
}
