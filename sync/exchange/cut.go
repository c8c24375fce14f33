// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
)

// Cut returns the copies to publish in place of one that has more endpoints than a copy may
// have: the first one has the name of copied, and each further one counts as that of a
// slice of its own. An endpoint stays in the copy that it is in according to current, the
// copies that are published now; so a change of one endpoint changes one copy.
func Cut(key types.NamespacedName, copied *discoveryv1.EndpointSlice, current []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	source := copied.Annotations[model.AnnotationSourceSlice]
	published := partsOf(source, len(copied.Endpoints), current)
	part, size := make([]int, len(copied.Endpoints)), map[int]int{}
	for i, endpoint := range copied.Endpoints {
		n, is := published[addressOf(endpoint)]
		if part[i] = n; !is || size[n] == maxEndpoints {
			part[i] = -1
			continue
		}
		size[n]++
	}
	free := 0
	for i := range part {
		if part[i] >= 0 {
			continue
		}
		for size[free] == maxEndpoints {
			free++
		}
		part[i] = free
		size[free]++
	}
	var out []*discoveryv1.EndpointSlice
	for _, n := range slices.Sorted(maps.Keys(size)) {
		one := *copied
		one.Annotations = maps.Clone(copied.Annotations)
		one.Name = model.RecordSliceName(key.Namespace, partName(source, n))
		one.Annotations[model.AnnotationSourceSlice] = partName(source, n)
		one.Endpoints = []discoveryv1.Endpoint{}
		for i, endpoint := range copied.Endpoints { // in the order of the source, whenever each one came
			if part[i] == n {
				one.Endpoints = append(one.Endpoints, endpoint)
			}
		}
		out = append(out, &one)
	}
	if len(out) == 0 {
		return []*discoveryv1.EndpointSlice{copied}
	}
	return out
}

// partsOf says in which part of the copy of a slice each endpoint is, by its first address.
func partsOf(source string, endpoints int, current []*discoveryv1.EndpointSlice) map[string]int {
	out := map[string]int{}
	for n := range endpoints/maxEndpoints + 1 + len(current) {
		for _, part := range current {
			if part.Annotations[model.AnnotationSourceSlice] != partName(source, n) {
				continue
			}
			for _, endpoint := range part.Endpoints {
				out[addressOf(endpoint)] = n
			}
		}
	}
	return out
}

// partName is the name of the slice that part n of a copy counts as that of.
func partName(source string, n int) string {
	if n == 0 {
		return source
	}
	suffix := fmt.Sprintf(".comity-%d", n)
	const longest = 253 // of a DNS subdomain
	return strings.TrimRight(source[:min(len(source), longest-len(suffix))], "-.") + suffix
}

func addressOf(endpoint discoveryv1.Endpoint) string {
	if len(endpoint.Addresses) == 0 {
		return ""
	}
	return endpoint.Addresses[0]
}
