// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package compactslice

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// version is a packed slice with so many endpoints, whose first address names the version.
func version(t *testing.T, n, endpoints int) *discoveryv1.EndpointSlice {
	t.Helper()
	s := derived(1, endpoints)
	for i := range s.Endpoints {
		s.Endpoints[i].Hostname = ptr.To(strings.Repeat("h", 63))
	}
	s.ResourceVersion, s.Endpoints[0].Addresses = fmt.Sprint(n), []string{fmt.Sprint("10.0.0.", n)}
	packed, err := pack(s)
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

const many = 1000 // endpoints of a large slice

func TestALargeSliceIsOpenedOnce(t *testing.T) {
	first, second, small := version(t, 1, many), version(t, 2, many), version(t, 1, 10)
	if len(first.GenerateName) < Large || len(small.GenerateName) >= Large {
		t.Fatalf("%d and %d bytes are no example", len(first.GenerateName), len(small.GenerateName))
	}
	open := func(s *discoveryv1.EndpointSlice, address string) *discoveryv1.EndpointSlice {
		t.Helper()
		out, err := Open(s)
		if err != nil || out.Endpoints[0].Addresses[0] != address || out.ResourceVersion != s.ResourceVersion {
			t.Fatalf("version %s, %v; want address %s", out.ResourceVersion, err, address)
		}
		return out
	}
	if a, b := open(first, "10.0.0.1"), open(first.DeepCopy(), "10.0.0.1"); a != b {
		t.Error("it was opened twice")
	}
	open(second, "10.0.0.2")
	open(first, "10.0.0.1")
	// A cluster that was restored may give a version to other endpoints.
	other := version(t, 3, many)
	other.ResourceVersion = first.ResourceVersion
	open(other, "10.0.0.3")
	if a, b := open(small, "10.0.0.1"), open(small, "10.0.0.1"); a == b {
		t.Error("a small one is kept")
	}
}

func TestAnEarlierVersionIsReturnedForFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner, another := new(Owner), new(Owner)
		first, second := version(t, 1, many), version(t, 2, many)
		is := func(owner *Owner, s *discoveryv1.EndpointSlice, earlier bool, version string) {
			t.Helper()
			if out, err := OpenRecent(owner, s, earlier); err != nil || out.ResourceVersion != version {
				t.Fatalf("version %s, %v; want %s", out.ResourceVersion, err, version)
			}
		}
		is(owner, first, true, "1")
		is(another, second, true, "2")
		is(owner, second, true, "1")
		relabeled := second.DeepCopy()
		relabeled.Labels["service"] = "another"
		is(owner, relabeled, true, "2")
		is(owner, first, false, "1")
		time.Sleep(maxAge - time.Millisecond)
		is(owner, second, true, "1")
		time.Sleep(time.Millisecond)
		is(owner, second, true, "2")
		is(owner, first, true, "2")
		is(owner, first, false, "1")
	})
}
