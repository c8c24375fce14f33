// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/sync/model"
)

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
