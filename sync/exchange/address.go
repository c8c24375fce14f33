// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// AddressProblem is why an endpoint address is not imported, in one word.
type AddressProblem string

// Reasons for which an address is dropped. The API server refuses a whole slice
// for some of them; the rest would send traffic where no pod of a peer can be.
const (
	AddressFine        AddressProblem = ""
	AddressMalformed   AddressProblem = "Malformed"
	AddressWrongFamily AddressProblem = "WrongFamily"
	AddressUnspecified AddressProblem = "Unspecified"
	AddressLoopback    AddressProblem = "Loopback"
	AddressLinkLocal   AddressProblem = "LinkLocal"
	AddressMulticast   AddressProblem = "Multicast"
	AddressBroadcast   AddressProblem = "Broadcast"
)

// CheckAddress says whether a pod of another cluster can have this address.
func CheckAddress(family discoveryv1.AddressType, address string) AddressProblem {
	// The API server accepts IPv6 addresses in their canonical form only.
	ip, err := netip.ParseAddr(address)
	if err != nil || ip.Zone() != "" || (ip.Is6() && !ip.Is4In6() && ip.String() != address) {
		return AddressMalformed
	}
	// An IPv4 address dressed as IPv6 would pass for one family and be routed
	// as the other, so it is judged neither, but refused.
	if ip.Is4In6() || ip.Is4() != (family == discoveryv1.AddressTypeIPv4) {
		return AddressWrongFamily
	}
	switch {
	case ip.IsUnspecified():
		return AddressUnspecified
	case ip.IsLoopback():
		return AddressLoopback
	case ip.IsLinkLocalUnicast():
		return AddressLinkLocal
	case ip.IsMulticast():
		return AddressMulticast
	case ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return AddressBroadcast
	}
	return AddressFine
}
