// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package localcluster

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/comity-mcs/comity/sync/model"
)

// defaultServiceCIDR is the ServiceCIDR that the API server makes of its own
// flags. It alone decides which families Services can have, and in what order;
// others only add room.
const defaultServiceCIDR = "kubernetes"

// facts are what was read of the cluster.
type facts struct {
	nodes []corev1.Node
	// cidrs is empty where the kind does not exist yet.
	cidrs []networkingv1.ServiceCIDR
	// service is default/kubernetes; empty if it was not found.
	service corev1.Service
}

// compute returns the properties of the cluster; opts override what was read.
func compute(opts Options, f facts) model.LocalCluster {
	local := model.LocalCluster{Zones: zones(f.nodes), PodCIDRs: opts.PodCIDRs, ServiceCIDRs: opts.ServiceCIDRs}
	if len(local.PodCIDRs) == 0 {
		for i := range f.nodes {
			local.PodCIDRs = append(local.PodCIDRs, model.ReadPrefixes(f.nodes[i].Spec.PodCIDRs...)...)
		}
	}
	if len(local.ServiceCIDRs) > 0 {
		local.Families = families(local.ServiceCIDRs)
	} else {
		local.ServiceCIDRs, local.Families = serviceRanges(f)
	}
	local.PodCIDRs, local.ServiceCIDRs = aggregate(local.PodCIDRs), aggregate(local.ServiceCIDRs)
	return local
}

// serviceRanges are those of all ServiceCIDRs. One that is being deleted may
// still have addresses in use. Without the default one the families are those
// of the one Service that every cluster has.
func serviceRanges(f facts) (all []netip.Prefix, inOrder []corev1.IPFamily) {
	for i := range f.cidrs {
		prefixes := model.ReadPrefixes(f.cidrs[i].Spec.CIDRs...)
		if f.cidrs[i].Name == defaultServiceCIDR {
			inOrder = families(prefixes)
		}
		all = append(all, prefixes...)
	}
	if len(inOrder) > 0 {
		return all, inOrder
	}
	var own []netip.Prefix
	for _, text := range f.service.Spec.ClusterIPs {
		if ip, err := netip.ParseAddr(text); err == nil {
			own = append(own, netip.PrefixFrom(ip, ip.BitLen()))
		}
	}
	return all, families(own)
}

// families are those of prefixes, each once, in their order.
func families(prefixes []netip.Prefix) []corev1.IPFamily {
	var out []corev1.IPFamily
	for _, p := range prefixes {
		family := corev1.IPv6Protocol
		if p.Addr().Is4() {
			family = corev1.IPv4Protocol
		}
		if !slices.Contains(out, family) {
			out = append(out, family)
		}
	}
	return out
}

func zones(nodes []corev1.Node) []string {
	var out []string
	for i := range nodes {
		if zone := nodes[i].Labels[corev1.LabelTopologyZone]; zone != "" {
			out = append(out, zone)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// aggregate is the shortest sorted list of prefixes that holds the same
// addresses: each address of each peer is looked up in it, and a cluster of
// thousands of Nodes has as many pod ranges, most of them neighbors.
func aggregate(prefixes []netip.Prefix) []netip.Prefix {
	sorted := slices.Clone(prefixes)
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var out []netip.Prefix
	for _, p := range sorted {
		if n := len(out); n > 0 && out[n-1].Overlaps(p) {
			continue // held by the one before, which begins no later and is no smaller
		}
		out = append(out, p)
		for len(out) > 1 {
			joined, ok := join(out[len(out)-2], out[len(out)-1])
			if !ok {
				break
			}
			out = append(out[:len(out)-2], joined)
		}
	}
	return out
}

// join is the prefix of which a and b are the halves, in this order.
func join(a, b netip.Prefix) (netip.Prefix, bool) {
	if a.Bits() != b.Bits() || a.Bits() == 0 || a == b {
		return netip.Prefix{}, false
	}
	both, err := a.Addr().Prefix(a.Bits() - 1)
	return both, err == nil && both.Addr() == a.Addr() && both.Contains(b.Addr())
}
