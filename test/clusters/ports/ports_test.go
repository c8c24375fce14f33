// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"net"
	"testing"
)

func TestPortsDifferAndCanBeListenedOn(t *testing.T) {
	const many = 350 // 50 clusters of 7: with ports that may repeat, some would
	var found []int
	for range 2 { // also of two that are asked for apart
		more, err := Free(many)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, more...)
	}
	if len(found) != 2*many {
		t.Fatalf("got %d ports, want %d", len(found), 2*many)
	}
	seen := map[int]bool{}
	for _, port := range found {
		if seen[port] {
			t.Errorf("port %d was given twice", port)
		}
		seen[port] = true
		if lock, err := reserve(port); lock != nil || err != nil {
			t.Errorf("port %d can be given to another process: lock %v, error %v", port, lock, err)
		}
		if port < first || port > last {
			t.Errorf("port %d is not from %d to %d", port, first, last)
		}
	}
	listener, err := net.Listen("tcp", Address(found[0]))
	if err != nil {
		t.Fatalf("a port that was given is still held: %v", err)
	}
	_ = listener.Close()
}
