// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"hash/fnv"
	"net/netip"
	"slices"
)

// maxSample is how many endpoints of a cluster are probed.
const maxSample = 3

// sampleOf picks at most maxSample of all, in an order of its own: those of the
// smallest hashes. So a restart picks the same, however they are listed; when
// others come or go most of the sample stays; and imports that share endpoints
// share the probes of them.
func sampleOf(all []netip.AddrPort) []netip.AddrPort {
	type ranked struct {
		target netip.AddrPort
		rank   uint64
	}
	best := make([]ranked, 0, maxSample+1)
	for _, target := range all {
		if !target.IsValid() || target.Port() == 0 || slices.ContainsFunc(best, func(r ranked) bool { return r.target == target }) {
			continue
		}
		r := ranked{target, rankOf(target)}
		at, _ := slices.BinarySearchFunc(best, r, func(a, b ranked) int {
			switch {
			case a.rank != b.rank && a.rank < b.rank:
				return -1
			case a.rank != b.rank:
				return 1
			}
			return a.target.Compare(b.target)
		})
		best = slices.Insert(best, at, r)
		best = best[:min(len(best), maxSample)]
	}
	out := make([]netip.AddrPort, len(best))
	for i, r := range best {
		out[i] = r.target
	}
	return out
}

func rankOf(target netip.AddrPort) uint64 {
	var buffer [64]byte
	sum := fnv.New64a()
	_, _ = sum.Write(target.AppendTo(buffer[:0])) // never fails
	// Neighboring addresses have neighboring sums; mix, so that a sample is not
	// three Pods of one Node.
	mixed := sum.Sum64()
	mixed ^= mixed >> 33
	mixed *= 0xff51afd7ed558ccd
	mixed ^= mixed >> 33
	return mixed
}
