// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/lru"

	"github.com/comity-mcs/comity/sync/compactslice"
	"github.com/comity-mcs/comity/sync/exchange"
)

// maxCleaned is how many large slices are kept without the parts that may not be imported.
const maxCleaned = 16

// cleanedSlices are the large slices that were cleaned last: whatever changes in an
// import reads them again.
type cleanedSlices struct {
	recent *lru.Cache // *discoveryv1.EndpointSlice, which is read-only → cleanedSlice
}

func newCleanedSlices() cleanedSlices { return cleanedSlices{lru.New(maxCleaned)} }

type cleanedSlice struct {
	filter exchange.Filter
	slice  *discoveryv1.EndpointSlice
	report exchange.Report
}

// clean is exchange.CleanSlice.
func (c cleanedSlices) clean(slice *discoveryv1.EndpointSlice, filter exchange.Filter) (*discoveryv1.EndpointSlice, exchange.Report) {
	if slice.Size() < compactslice.Large {
		return exchange.CleanSlice(slice, filter)
	}
	if found, ok := c.recent.Get(slice); ok {
		if kept := found.(cleanedSlice); equalFilters(kept.filter, filter) {
			return kept.slice, kept.report
		}
	}
	out, report := exchange.CleanSlice(slice, filter)
	c.recent.Add(slice, cleanedSlice{filter, out, report})
	return out, report
}

func equalFilters(a, b exchange.Filter) bool {
	return slices.Equal(a.Accepted, b.Accepted) && slices.Equal(a.PodCIDRs, b.PodCIDRs) && slices.Equal(a.ServiceCIDRs, b.ServiceCIDRs)
}
