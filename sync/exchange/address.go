// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/sync/model"
)

// Filter holds the CIDRs in which the endpoints of one peer may be. They come from
// the local administrator, never from the peer. The zero value accepts no address.
// The prefixes have no host bits, and none is an IPv4-mapped IPv6 prefix.
type Filter struct {
	// Accepted are the CIDRs that the local administrator accepts from the peer.
	// Without any, no address is accepted.
	Accepted []netip.Prefix
	// An address in a pod or Service CIDR of this cluster is refused even if it is
	// accepted: traffic to it would reach a pod or a Service of this cluster.
	model.LocalCluster
}

// CheckAddress returns why no pod of the peer can have this address: the reason of a problem;
// empty if one can.
func (f *Filter) CheckAddress(family discoveryv1.AddressType, address string) string {
	ip, isPods := parseAddress(family, address)
	switch {
	case !isPods:
		return model.ReasonInvalidEndpoints
	case containsAddr(f.PodCIDRs, ip) || containsAddr(f.ServiceCIDRs, ip):
		return model.ReasonAddressOverlap
	case !containsAddr(f.Accepted, ip):
		return model.ReasonAddressNotAccepted
	}
	return ""
}

func containsAddr(prefixes []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// Ranges in which no pod has its address, besides those that netip knows. Traffic to an IPv6
// address that contains an IPv4 address could be routed or translated to that one, which was
// not checked. (An IPv4-mapped one is refused before.)
var (
	thisNetwork    = netip.MustParsePrefix("0.0.0.0/8")    // RFC 1122, 3.2.1.3
	compatibleIPv4 = netip.MustParsePrefix("::/96")        // RFC 4291, 2.5.5.1
	translatedIPv4 = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052
)

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// parseAddress reports whether a pod of any cluster can have the address. Because of some that
// none can have, the API server would refuse the whole slice.
func parseAddress(family discoveryv1.AddressType, address string) (ip netip.Addr, isPods bool) {
	ip, err := netip.ParseAddr(address)
	isMalformed := err != nil || ip.Zone() != "" || ip.Is4In6() || ip.Is6() && !canonical(ip, address) || ip.Is4() != (family == discoveryv1.AddressTypeIPv4)
	isSpecial := ip.IsUnspecified() || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip == broadcast
	return ip, !isMalformed && !isSpecial && !thisNetwork.Contains(ip) && !compatibleIPv4.Contains(ip) && !translatedIPv4.Contains(ip)
}

// canonical reports whether address is ip in canonical form, the only one that the
// API server accepts for IPv6. It runs for every endpoint, so it allocates nothing.
func canonical(ip netip.Addr, address string) bool {
	var buffer [64]byte
	return string(ip.AppendTo(buffer[:0])) == address
}

// Report lists what CleanSlice left out, by the reason of the problem. Nil is an empty report.
type Report map[string]Dropped

// Dropped are the parts of a peer's slices that were left out for one reason.
type Dropped struct {
	Count int
	// First names one of them: its value, quoted and shortened, the published slice, and
	// the path of the field there, such as endpoints[3].addresses[0].
	First string
}

// Add adds the report on another slice to r, which is not nil.
func (r Report) Add(other Report) {
	for reason, d := range other {
		known := r[reason]
		r[reason] = Dropped{known.Count + d.Count, cmp.Or(known.First, d.First)}
	}
}

// Problems are what the reader of an import should know of the parts that were
// left out of the slices of cluster, at most one problem of each reason. The
// filter is the one that was used. The messages are bounded, the same for the same slices, and name no cluster but cluster,
// so cluster may be shown them.
func (r Report) Problems(cluster model.ClusterID, filter Filter) (out []model.Problem) {
	for _, reason := range slices.Sorted(maps.Keys(r)) {
		what, why := leftOut(reason, cluster, filter)
		// The count comes early: of several problems in one condition, the end may be cut.
		text := fmt.Sprintf("%d %s of cluster %s are left out, because %s; the first is %s", r[reason].Count, what, cluster, why, r[reason].First)
		out = append(out, model.Problem{Reason: reason, Cluster: cluster, Message: model.Bound(text, model.MaxEventNote)})
	}
	return out
}

// leftOut says what is left out of the slices of cluster for a reason, why, and what to do about it.
func leftOut(reason string, cluster model.ClusterID, filter Filter) (what, why string) {
	switch reason {
	case model.ReasonAddressOverlap:
		return "endpoint addresses", fmt.Sprintf("they are in ranges of this cluster (pods %s; Services %s); give one of the two other ranges", join(filter.PodCIDRs), join(filter.ServiceCIDRs))
	case model.ReasonAddressNotAccepted:
		return "endpoint addresses", fmt.Sprintf("those accepted are %s; if they are of its pods, add their CIDR to spec.acceptedCIDRs of Peer %s", cmp.Or(join(filter.Accepted), "none"), cluster)
	case model.ReasonLimitExceeded:
		return "EndpointSlices", fmt.Sprintf("at most %d bytes and %d addresses of one are imported; split them there", maxSliceBytes, maxSliceAddresses)
	}
	return "parts of the EndpointSlices", "they are not valid, or no Pod can have such an address; correct them there"
}

func join(prefixes []netip.Prefix) string {
	return model.Bound(strings.Join(model.Map(prefixes, netip.Prefix.String), ","), 256)
}

// Targets are the TCP addresses of the ready endpoints, or of all if none is ready.
func Targets(published []*discoveryv1.EndpointSlice) []netip.AddrPort {
	targets := map[bool][]netip.AddrPort{} // by whether they are ready
	for _, s := range published {
		at := slices.IndexFunc(s.Ports, func(p discoveryv1.EndpointPort) bool {
			return ptr.Deref(p.Protocol, corev1.ProtocolTCP) == corev1.ProtocolTCP && p.Port != nil && isPort(*p.Port)
		})
		if at < 0 {
			continue
		}
		for _, e := range s.Endpoints {
			for _, text := range e.Addresses {
				if address, err := netip.ParseAddr(text); err == nil {
					targets[model.IsReady(e)] = append(targets[model.IsReady(e)], netip.AddrPortFrom(address, uint16(*s.Ports[at].Port)))
				}
			}
		}
	}
	return targets[len(targets[true]) > 0]
}
