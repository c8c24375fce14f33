// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package ports finds TCP and UDP ports on 127.0.0.1 for programs to listen on.
//
// It takes a number of ports and gives as many that differ and that nothing used
// a moment ago. Ask once for all programs that start together: what is found in
// two calls may be the same. They lie below the range from which Linux (32768
// on) gives ports to outgoing connections: a program that is down for a while
// must find its port free, and a client that dials such a port may reach itself.
package ports

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

const (
	first = 20000
	last  = 29999
	// attempts is how many taken ports are met before giving up.
	attempts = 1000
)

// Free gives n ports. They are held until all are found, so that they differ.
func Free(n int) ([]int, error) {
	found := make([]int, n)
	for i := range found {
		number, release, err := one()
		if err != nil {
			return nil, err
		}
		defer release()
		found[i] = number
	}
	return found, nil
}

func one() (number int, release func(), err error) {
	for range attempts {
		number = first + rand.IntN(last-first+1)
		tcp, err := net.Listen("tcp", Address(number))
		if err != nil {
			continue
		}
		udp, err := net.ListenPacket("udp", Address(number))
		if err != nil {
			_ = tcp.Close()
			continue
		}
		return number, func() { _, _ = tcp.Close(), udp.Close() }, nil
	}
	return 0, nil, fmt.Errorf("no free port from %d to %d on 127.0.0.1", first, last)
}

// Address is the port as host:port on 127.0.0.1.
func Address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
