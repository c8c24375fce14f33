// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package ports finds TCP and UDP ports on 127.0.0.1 for programs to listen on.
//
// It takes a number of ports and gives as many that nothing used a moment ago. No
// port is given twice by one process: a program listens only some time after it
// got its port. They lie below the range from which Linux (32768
// on) gives ports to outgoing connections: a program that is down for a while
// must find its port free, and a client that dials such a port may reach itself.
package ports

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// given are the ports that this process gave, by number.
var given sync.Map

const (
	first = 20000
	last  = 29999
	// attempts is how many taken ports are met before giving up.
	attempts = 1000
)

// Free gives n ports.
func Free(n int) (found []int, err error) {
	for range n {
		number, err := one()
		if err != nil {
			return nil, err
		}
		found = append(found, number)
	}
	return found, nil
}

func one() (int, error) {
	for range attempts {
		number := first + rand.IntN(last-first+1)
		if _, before := given.LoadOrStore(number, true); before {
			continue
		}
		tcp, err := net.Listen("tcp", Address(number))
		if err != nil {
			continue
		}
		udp, err := net.ListenPacket("udp", Address(number))
		_ = tcp.Close()
		if err != nil {
			continue
		}
		_ = udp.Close()
		return number, nil
	}
	return 0, fmt.Errorf("no free port from %d to %d on 127.0.0.1", first, last)
}

// Address is the port as host:port on 127.0.0.1.
func Address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
