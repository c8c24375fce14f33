// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/comity-mcs/comity/sync/model"
)

// Published is what is known of one other cluster about one namespace and name.
type Published struct {
	// Member is what is known of the member; only its ID, and Liveness, of a cluster
	// that is none.
	model.Member
	// Known is true of a member. Removed is true if its Peer says so.
	Known, Removed bool
	// Export is what it exports; nil if nothing, or nothing that is valid and accepted.
	Export *model.Export
	// Refusal is why what it exports is not imported whatever others export; nil if nothing
	// is refused.
	Refusal *model.Refusal
	// Withdrawals are what it states of exports of this name.
	Withdrawals []model.Withdrawal
	// NotAccepted is true if its Peer does not accept exports of the namespace.
	NotAccepted bool
	// Accepted are the addresses that are accepted from it; nil if that is not known.
	Accepted *Filter
	// Namespace is the namespace there, as its NamespaceRecord has it.
	Namespace model.MemberNamespace
	// Slices are what may be imported of its endpoints, Problems what is left out. A copy of
	// which nothing may be imported has no address type and no endpoints: it exists, so it
	// was not lost.
	Slices   []*discoveryv1.EndpointSlice
	Problems []model.Problem
}
