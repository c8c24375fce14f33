// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decision

import "slices"

// MaxInsteadOfAll bounds the records that replace the one that every member reads, where
// policies exclude a few clusters: each is written again with every change of the
// export, and each has its own copies of the EndpointSlices.
const MaxInsteadOfAll = 32

// Audience is where an export is published before policies exclude clusters.
type Audience struct {
	// Self is the cluster that exports. It imports its own export without an exchange, so
	// that nothing excludes it.
	Self string
	// All is true if Clusters are all members, and not those of a scope.
	All bool
	// Clusters are the ids.
	Clusters []string
}

// Without are the clusters that are left, and those that lose the export, when policies
// exclude some. Published is false if it is then published nowhere: none is left, or more
// than MaxInsteadOfAll of all members.
func (a Audience) Without(excluded []string) (left, lost []string, published bool) {
	for _, id := range a.Clusters {
		if id != a.Self && slices.Contains(excluded, id) {
			lost = append(lost, id)
		} else {
			left = append(left, id)
		}
	}
	return left, lost, len(lost) == 0 || len(left) > 0 && (!a.All || len(left) <= MaxInsteadOfAll)
}
