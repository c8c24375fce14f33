// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// AddressProblem is the reason, one word, why an endpoint address is not imported.
type AddressProblem string

// Reasons for which an address is left out. For some of them the API server would
// refuse the whole slice; for the others no pod of a peer can have the address.
const (
	AddressFine        AddressProblem = ""
	AddressMalformed   AddressProblem = "Malformed"
	AddressWrongFamily AddressProblem = "WrongFamily"
	AddressUnspecified AddressProblem = "Unspecified"
	AddressLoopback    AddressProblem = "Loopback"
	AddressLinkLocal   AddressProblem = "LinkLocal"
	AddressMulticast   AddressProblem = "Multicast"
	AddressBroadcast   AddressProblem = "Broadcast"
	// AddressOverlap: it is in a pod or Service CIDR of this cluster.
	AddressOverlap AddressProblem = "Overlap"
	// AddressNotAccepted: it is in no CIDR that the local administrator accepts.
	AddressNotAccepted AddressProblem = "NotAccepted"
)

// Filter holds the CIDRs in which the endpoints of one peer may be. They come from
// the local administrator, never from the peer. The zero value accepts no address.
// The prefixes have no host bits, and none is an IPv4-mapped IPv6 prefix.
type Filter struct {
	// Accepted are the CIDRs that the local administrator accepts from the peer.
	// Without any, no address is accepted.
	Accepted []netip.Prefix
	// PodCIDRs and ServiceCIDRs are those of this cluster. An address in them is
	// refused even if it is accepted: traffic to it would reach a pod or a Service
	// of this cluster.
	PodCIDRs, ServiceCIDRs []netip.Prefix
}

// CheckAddress returns why no pod of the peer can have this address, or AddressFine.
func (f *Filter) CheckAddress(family discoveryv1.AddressType, address string) AddressProblem {
	ip, problem := parseAddress(family, address)
	if problem != AddressFine {
		return problem
	}
	if _, _, own := f.own(ip); own {
		return AddressOverlap
	}
	if !containsAddr(f.Accepted, ip) {
		return AddressNotAccepted
	}
	return AddressFine
}

// own returns the CIDR of this cluster that contains ip, and its use.
func (f *Filter) own(ip netip.Addr) (use string, prefix netip.Prefix, found bool) {
	for _, p := range f.PodCIDRs {
		if p.Contains(ip) {
			return "pod", p, true
		}
	}
	for _, p := range f.ServiceCIDRs {
		if p.Contains(ip) {
			return "service", p, true
		}
	}
	return "", netip.Prefix{}, false
}

func containsAddr(prefixes []netip.Prefix, ip netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}

// Ranges in which an IPv6 address contains an IPv4 address, besides IPv4-mapped
// addresses. The checks of IPv6 addresses would pass, but the traffic could be
// routed or translated to an IPv4 address that was not checked.
var (
	ipv4Compatible = netip.MustParsePrefix("::/96")        // RFC 4291, 2.5.5.1
	nat64          = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052
	thisNetwork    = netip.MustParsePrefix("0.0.0.0/8")    // RFC 1122, 3.2.1.3
)

// parseAddress returns AddressFine if a pod of any cluster can have the address, and
// else why not.
func parseAddress(family discoveryv1.AddressType, address string) (netip.Addr, AddressProblem) {
	ip, err := netip.ParseAddr(address)
	if err != nil || ip.Zone() != "" || (ip.Is6() && !ip.Is4In6() && !canonical(ip, address)) {
		return netip.Addr{}, AddressMalformed
	}
	switch {
	case ip.Is4In6() || ip.Is4() != (family == discoveryv1.AddressTypeIPv4):
		return ip, AddressWrongFamily
	case ip.IsUnspecified() || thisNetwork.Contains(ip):
		return ip, AddressUnspecified
	case ip.IsLoopback():
		return ip, AddressLoopback
	case ipv4Compatible.Contains(ip) || nat64.Contains(ip):
		return ip, AddressWrongFamily
	case ip.IsLinkLocalUnicast():
		return ip, AddressLinkLocal
	case ip.IsMulticast():
		return ip, AddressMulticast
	case ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return ip, AddressBroadcast
	}
	return ip, AddressFine
}

// canonical reports whether address is ip in canonical form, the only one that the
// API server accepts for IPv6. It runs for every endpoint, so it allocates nothing.
func canonical(ip netip.Addr, address string) bool {
	var buffer [64]byte
	return string(ip.AppendTo(buffer[:0])) == address
}
