// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/comity-mcs/comity/sync/model"
)

// Reasons of parts that are left out, besides those of addresses.
const (
	// reasonInvalid: the EndpointSlice API does not allow it.
	reasonInvalid = "Invalid"
	// reasonTooLarge: BoundSlice left out the slice.
	reasonTooLarge = "TooLarge"
)

// Report lists what CleanSlice left out, by reason: one word, an AddressProblem, TooLarge,
// or Invalid for any other part. Nil is an empty report.
type Report map[string]Dropped

// Dropped are the parts of a peer's slices that were left out for one reason.
type Dropped struct {
	Count int
	// First names one of them: its value, quoted and shortened, the published slice, and
	// the path of the field there, such as endpoints[3].addresses[0].
	First string
}

// Add returns r with the report on another slice added to it.
func (r Report) Add(other Report) Report {
	if r == nil {
		return maps.Clone(other)
	}
	for reason, d := range other {
		if known := r[reason]; known.Count > 0 {
			d = Dropped{known.Count + d.Count, known.First}
		}
		r[reason] = d
	}
	return r
}

// Problems are what the reader of an import should know of the parts that were
// left out of the slices of cluster, at most one problem of each reason. The
// filter is the one that was used. The messages are bounded, the same for the same slices, and name no cluster but cluster:
// Others of each problem is empty, so cluster may be shown them.
func (r Report) Problems(cluster model.ClusterID, filter Filter) []model.Problem {
	counts, examples := map[string][]string{}, map[string][]string{} // by reason of the problem
	for _, reason := range slices.Sorted(maps.Keys(r)) {
		problem := model.ReasonInvalidEndpoints
		switch reason {
		case string(AddressOverlap):
			problem = model.ReasonAddressOverlap
		case string(AddressNotAccepted):
			problem = model.ReasonAddressNotAccepted
		case reasonTooLarge:
			problem = model.ReasonLimitExceeded
		}
		counts[problem] = append(counts[problem], fmt.Sprintf("%d %s", r[reason].Count, reason))
		examples[problem] = append(examples[problem], r[reason].First)
	}
	var out []model.Problem
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		// The counts come early: of several problems in one condition, the end may be cut.
		text := fmt.Sprintf("%s: %s", remedy(reason, strings.Join(counts[reason], ", "), cluster, filter), strings.Join(examples[reason], ", "))
		out = append(out, model.Problem{Reason: reason, Cluster: cluster, Message: model.Bound(text, model.MaxEventNote)})
	}
	return out
}

// remedy says what is left out of the slices of cluster, how often, why, and what to do about it.
func remedy(reason, counts string, cluster model.ClusterID, filter Filter) string {
	switch reason {
	case model.ReasonAddressOverlap:
		return fmt.Sprintf("endpoint addresses of cluster %s are left out (%s), because they are in address ranges of this cluster (pods %s; Services %s); "+
			"clusters that import from each other cannot have the same addresses, so give one of them other ranges",
			cluster, counts, join(filter.PodCIDRs), join(filter.ServiceCIDRs))
	case model.ReasonAddressNotAccepted:
		if len(filter.Accepted) == 0 {
			return fmt.Sprintf("endpoint addresses of cluster %[1]s are left out (%[2]s), because no address of it is accepted here; "+
				"list its pod CIDRs in spec.acceptedCIDRs of Peer %[1]s", cluster, counts)
		}
		return fmt.Sprintf("endpoint addresses of cluster %[1]s are left out (%[2]s), because only %[3]s are accepted from it; "+
			"if the addresses are those of its pods, add their CIDR to spec.acceptedCIDRs of Peer %[1]s", cluster, counts, join(filter.Accepted))
	case model.ReasonLimitExceeded:
		return fmt.Sprintf("EndpointSlices of cluster %[1]s are left out (%[2]s), because at most %[3]d bytes and %[4]d addresses of one are imported; "+
			"split them in cluster %[1]s", cluster, counts, maxSliceBytes, maxSliceAddresses)
	}
	return fmt.Sprintf("parts of the EndpointSlices that cluster %[1]s publishes are left out (%[2]s), because they are not valid; "+
		"correct the EndpointSlices in cluster %[1]s", cluster, counts)
}

func join(prefixes []netip.Prefix) string {
	return model.Bound(model.JoinPrefixes(prefixes), 256)
}
