// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/sync/compactslice"
	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
)

// largeOf is a slice with so many bytes that it is large; address is that of its first endpoint.
func largeOf(i int, address string) *discoveryv1.EndpointSlice {
	s := sliceOf(i, address)
	for n := range 999 {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.1.%d.%d", 1+n/250, 1+n%250)}, Hostname: ptr.To(strings.Repeat("h", 63)),
		})
	}
	return s
}

func TestALargeSliceIsCleanedOnceForEachFilter(t *testing.T) {
	c := newCleanedSlices()
	slice := largeOf(1, "10.9.0.1")
	if slice.Size() < compactslice.Large {
		t.Fatalf("%d bytes are no example", slice.Size())
	}
	narrow := exchange.Filter{Accepted: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}
	wide := exchange.Filter{Accepted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	first, report := c.clean(slice, narrow)
	if again, same := c.clean(slice, narrow); again != first || same.Total != report.Total {
		t.Error("it was cleaned twice")
	}
	for _, filter := range []exchange.Filter{wide, narrow, {Accepted: wide.Accepted, PodCIDRs: narrow.Accepted}, {Accepted: wide.Accepted, ServiceCIDRs: narrow.Accepted}} {
		want, wantReport := exchange.CleanSlice(slice, filter)
		if got, report := c.clean(slice, filter); len(got.Endpoints) != len(want.Endpoints) || report.Total != wantReport.Total {
			t.Errorf("%v: %d endpoints and %d problems, want %d and %d", filter, len(got.Endpoints), report.Total, len(want.Endpoints), wantReport.Total)
		}
	}
}

// FAULT 31: a peer rewrites a large slice without pause. What changes meanwhile in the
// same import does not open each version of it.
func TestFault31ALargeSliceThatChangesTooFastIsReadWhenItsTurnComes(t *testing.T) {
	w := newWorld(t)
	w.server.put("exportrecords", record(shared, 1))
	w.server.put("endpointslices", largeOf(1, "10.1.0.1"))
	w.join()
	var mu sync.Mutex
	var due []func()
	w.set.pacer.mu.Lock()
	w.set.pacer.after = func(_ time.Duration, f func()) {
		mu.Lock()
		defer mu.Unlock()
		due = append(due, f)
	}
	w.set.pacer.mu.Unlock()
	// read are the first addresses of the large slice and of the one beside it.
	read := func() (large, small string) {
		slices, _ := w.set.Slices("b", keyOf(1))
		for _, s := range slices {
			switch {
			case len(s.Endpoints) > 1:
				large = s.Endpoints[0].Addresses[0]
			case len(s.Endpoints) == 1:
				small = s.Endpoints[0].Addresses[0]
			}
		}
		return large, small
	}
	beside := sliceOf(1)
	beside.Name, beside.Annotations = beside.Name+"2", map[string]string{model.AnnotationSourceSlice: "x2"}
	// change changes the large slice, and then the one beside it, which shows that both were read.
	n := 0
	change := func() (large string) {
		n++
		at := fmt.Sprint("10.1.0.", n)
		w.server.put("endpointslices", largeOf(1, at))
		other := beside.DeepCopy()
		other.Endpoints[0].Addresses = []string{at}
		w.server.put("endpointslices", other)
		w.await("a change beside it is read at once", func() bool {
			_, small := read()
			large, _ = read()
			return small == at
		})
		return large
	}
	for !w.set.pacer.waits("b", keyOf(1)) {
		change()
	}
	before, _ := read()
	if large := change(); large != before {
		t.Errorf("it was read before its turn: %s, not %s", large, before)
	}
	mu.Lock()
	turns := due
	mu.Unlock()
	for _, turn := range turns {
		turn()
	}
	if large, small := read(); large != small {
		t.Errorf("in its turn %s is read, want %s", large, small)
	}
}
