// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package ports finds TCP and UDP ports on 127.0.0.1 for programs to listen on.
//
// It takes a number of ports and gives as many that nothing used a moment ago. No
// port is given twice while a process runs that got it, neither to it nor to another
// process of the same user: a program listens only some time after it got its port, and
// may be down for minutes. They lie below the range from which Linux (32768
// on) gives ports to outgoing connections: a program that is down for a while
// must find its port free, and a client that dials such a port may reach itself.
package ports

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// held are the locks of the ports that this process gave, by number. They end with it.
var held sync.Map

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
		lock, err := reserve(number)
		if err != nil {
			return 0, err
		}
		if lock == nil {
			continue
		}
		if !isFree(number) {
			_ = lock.Close()
			continue
		}
		held.Store(number, lock)
		return number, nil
	}
	return 0, fmt.Errorf("no free port from %d to %d on 127.0.0.1", first, last)
}

// reserve locks the file of a port until it is closed; nil if somebody has locked it.
func reserve(number int) (*os.File, error) {
	folder := filepath.Join(os.TempDir(), fmt.Sprintf("comity-ports-%d", os.Getuid()))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(folder, strconv.Itoa(number)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, nil //nolint:nilerr // somebody has locked it
	}
	return lock, nil
}

// isFree reports whether nothing listens on a port.
func isFree(number int) bool {
	tcp, err := net.Listen("tcp", Address(number))
	if err != nil {
		return false
	}
	defer func() { _ = tcp.Close() }()
	udp, err := net.ListenPacket("udp", Address(number))
	if err != nil {
		return false
	}
	return udp.Close() == nil
}

// Address is the port as host:port on 127.0.0.1.
func Address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
