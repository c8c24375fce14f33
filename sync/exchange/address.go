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
	// AddressOverlap: this cluster itself has pods or Services there.
	AddressOverlap AddressProblem = "Overlap"
	// AddressNotAccepted: outside of what the local administrator accepts.
	AddressNotAccepted AddressProblem = "NotAccepted"
)

// Filter says where the endpoints of one peer may be, in the words of the local
// administrator and never of the peer. The zero value accepts no address. The
// prefixes are masked, and none is IPv4 dressed as IPv6.
type Filter struct {
	// Accepted are the ranges that the local administrator accepts from the
	// peer; none of them means no address.
	Accepted []netip.Prefix
	// PodCIDRs and ServiceCIDRs are this cluster's own. They win over Accepted:
	// an address in them would be routed to a pod or a Service of this cluster.
	PodCIDRs, ServiceCIDRs []netip.Prefix
}

// CheckAddress says whether a pod of the peer can have this address.
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

// own finds the range of this cluster that holds ip, and what it is for.
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

// CheckAddress says whether a pod of any cluster can have this address.
func CheckAddress(family discoveryv1.AddressType, address string) AddressProblem {
	_, problem := parseAddress(family, address)
	return problem
}

// Ranges in which an IPv6 address stands for an IPv4 one, beside IPv4-mapped
// addresses: such an address would pass every check of IPv6 and yet be routed,
// or translated by a gateway, to an IPv4 address that nobody checked.
var (
	ipv4Compatible = netip.MustParsePrefix("::/96")        // RFC 4291, 2.5.5.1
	nat64          = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052
	thisNetwork    = netip.MustParsePrefix("0.0.0.0/8")    // RFC 1122, 3.2.1.3
)

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

// canonical reports whether address is ip in the one form that the API server
// accepts for IPv6. It makes no garbage: this runs for every endpoint.
func canonical(ip netip.Addr, address string) bool {
	var buffer [64]byte
	return string(ip.AppendTo(buffer[:0])) == address
}
