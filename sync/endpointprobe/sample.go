// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package endpointprobe

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"maps"
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
	hashes := map[netip.AddrPort][sha256.Size]byte{}
	for _, target := range all {
		if target.IsValid() && target.Port() != 0 {
			hashes[target] = sha256.Sum256([]byte(target.String()))
		}
	}
	sorted := slices.SortedFunc(maps.Keys(hashes), func(a, b netip.AddrPort) int {
		left, right := hashes[a], hashes[b]
		return cmp.Or(bytes.Compare(left[:], right[:]), a.Compare(b))
	})
	return sorted[:min(len(sorted), maxSample)]
}
