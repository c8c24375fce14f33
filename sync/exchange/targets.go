// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/comity-mcs/comity/sync/model"
)

// Targets are the TCP addresses of the ready endpoints, or of all if none is ready.
func Targets(published []*discoveryv1.EndpointSlice) []netip.AddrPort {
	var ready, others []netip.AddrPort
	for _, s := range published {
		port := tcpPort(s)
		if port == 0 {
			continue
		}
		for _, e := range s.Endpoints {
			for _, text := range e.Addresses {
				address, err := netip.ParseAddr(text)
				if err != nil {
					continue
				}
				if model.IsReady(e) {
					ready = append(ready, netip.AddrPortFrom(address, port))
				} else {
					others = append(others, netip.AddrPortFrom(address, port))
				}
			}
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return others
}

// tcpPort is a port on which endpoints of the slice accept connections; 0 if
// none is known.
func tcpPort(s *discoveryv1.EndpointSlice) uint16 {
	for _, p := range s.Ports {
		isTCP := p.Protocol == nil || *p.Protocol == corev1.ProtocolTCP
		if isTCP && p.Port != nil && *p.Port > 0 && *p.Port <= 65535 {
			return uint16(*p.Port)
		}
	}
	return 0
}
