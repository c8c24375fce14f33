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

// Reasons for which parts of a peer's slices are left out, one word each, besides those of
// parseAddress.
const (
	// reasonOverlap: the address is in a pod or Service CIDR of this cluster.
	reasonOverlap = "Overlap"
	// reasonNotAccepted: it is in no CIDR that the local administrator accepts.
	reasonNotAccepted = "NotAccepted"
	// reasonInvalid: the EndpointSlice API does not allow it.
	reasonInvalid = "Invalid"
	// reasonTooLarge: BoundSlice left out the slice.
	reasonTooLarge = "TooLarge"
)

// problemOf is the reason of the problem with what is left out for a reason: that of
// InvalidEndpoints for any other.
var problemOf = map[string]string{
	reasonOverlap: model.ReasonAddressOverlap, reasonNotAccepted: model.ReasonAddressNotAccepted, reasonTooLarge: model.ReasonLimitExceeded,
}

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

// CheckAddress returns why no pod of the peer can have this address: one word, empty if one can.
func (f *Filter) CheckAddress(family discoveryv1.AddressType, address string) string {
	ip, reason := parseAddress(family, address)
	switch {
	case reason != "":
		return reason
	case containsAddr(f.PodCIDRs, ip) || containsAddr(f.ServiceCIDRs, ip):
		return reasonOverlap
	case !containsAddr(f.Accepted, ip):
		return reasonNotAccepted
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

// parseAddress returns no reason if a pod of any cluster can have the address, and else why
// not. For some reasons the API server would refuse the whole slice.
func parseAddress(family discoveryv1.AddressType, address string) (ip netip.Addr, reason string) {
	ip, err := netip.ParseAddr(address)
	switch {
	case err != nil || ip.Zone() != "" || ip.Is6() && !ip.Is4In6() && !canonical(ip, address):
		reason = "Malformed"
	case ip.Is4In6() || ip.Is4() != (family == discoveryv1.AddressTypeIPv4):
		reason = "WrongFamily"
	case ip.IsUnspecified() || thisNetwork.Contains(ip):
		reason = "Unspecified"
	case ip.IsLoopback():
		reason = "Loopback"
	case ip.IsLinkLocalUnicast():
		reason = "LinkLocal"
	case ip.IsMulticast():
		reason = "Multicast"
	case ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		reason = "Broadcast"
	case compatibleIPv4.Contains(ip) || translatedIPv4.Contains(ip):
		reason = "WrongFamily"
	}
	return ip, reason
}

// canonical reports whether address is ip in canonical form, the only one that the
// API server accepts for IPv6. It runs for every endpoint, so it allocates nothing.
func canonical(ip netip.Addr, address string) bool {
	var buffer [64]byte
	return string(ip.AppendTo(buffer[:0])) == address
}

// Report lists what CleanSlice left out, by reason: one word, that of CheckAddress, TooLarge,
// or Invalid for any other part. Nil is an empty report.
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
func (r Report) Problems(cluster model.ClusterID, filter Filter) []model.Problem {
	counts, examples := map[string][]string{}, map[string][]string{} // by reason of the problem
	for _, reason := range slices.Sorted(maps.Keys(r)) {
		problem := cmp.Or(problemOf[reason], model.ReasonInvalidEndpoints)
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
	what, why := "endpoint addresses", ""
	switch reason {
	case model.ReasonAddressOverlap:
		why = fmt.Sprintf("they are in ranges of this cluster (pods %s; Services %s); give one of the two other ranges", join(filter.PodCIDRs), join(filter.ServiceCIDRs))
	case model.ReasonAddressNotAccepted:
		why = fmt.Sprintf("only %s are accepted; if they are those of its pods, add their CIDR to spec.acceptedCIDRs of Peer %s", join(filter.Accepted), cluster)
		if len(filter.Accepted) == 0 {
			why = fmt.Sprintf("none is accepted; list its pod CIDRs in spec.acceptedCIDRs of Peer %s", cluster)
		}
	case model.ReasonLimitExceeded:
		what, why = "EndpointSlices", fmt.Sprintf("at most %d bytes and %d addresses of one are imported; split them there", maxSliceBytes, maxSliceAddresses)
	default:
		what, why = "parts of the EndpointSlices", "they are not valid; correct them there"
	}
	return fmt.Sprintf("%s of cluster %s are left out (%s), because %s", what, cluster, counts, why)
}

func join(prefixes []netip.Prefix) string {
	return model.Bound(strings.Join(model.PrefixTexts(prefixes), ","), 256)
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
