// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken below the range from which Linux (32768 on) gives ports to
// outgoing connections: a component that is down for a while must find its port
// free, and a client that dials a port in that range may even reach itself.
const (
	firstPort = 20000
	lastPort  = 29999
)

// ports of one cluster's components.
type ports struct {
	etcd, etcdPeer, apiserver, controllerManager, scheduler, dns, dnsReady int
}

// choosePorts picks ports that are free now, for TCP and UDP. They are held
// until all are chosen, so that they differ.
func choosePorts() (ports, error) {
	var chosen ports
	for _, port := range []*int{
		&chosen.etcd, &chosen.etcdPeer, &chosen.apiserver, &chosen.controllerManager,
		&chosen.scheduler, &chosen.dns, &chosen.dnsReady,
	} {
		number, release, err := freePort()
		if err != nil {
			return ports{}, err
		}
		defer release()
		*port = number
	}
	return chosen, nil
}

func freePort() (number int, release func(), err error) {
	for range 1000 {
		number = firstPort + rand.IntN(lastPort-firstPort+1)
		tcp, err := net.Listen("tcp", address(number))
		if err != nil {
			continue
		}
		udp, err := net.ListenPacket("udp", address(number))
		if err != nil {
			_ = tcp.Close()
			continue
		}
		return number, func() { _, _ = tcp.Close(), udp.Close() }, nil
	}
	return 0, nil, fmt.Errorf("no free port from %d to %d on 127.0.0.1", firstPort, lastPort)
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
