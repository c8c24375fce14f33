// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import "github.com/comity-mcs/comity/test/clusters/ports"

// componentPorts are those of one cluster's components.
type componentPorts struct {
	etcd, etcdPeer, apiserver, controllerManager, scheduler, dns, dnsReady int
}

// choosePorts picks ports for n clusters, all at once, so that they differ.
func choosePorts(n int) ([]componentPorts, error) {
	const each = 7
	free, err := ports.Free(n * each)
	if err != nil {
		return nil, err
	}
	chosen := make([]componentPorts, n)
	for i := range chosen {
		p := free[i*each : (i+1)*each]
		chosen[i] = componentPorts{p[0], p[1], p[2], p[3], p[4], p[5], p[6]}
	}
	return chosen, nil
}

func address(port int) string { return ports.Address(port) }
