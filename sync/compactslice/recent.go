// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package compactslice

import (
	"fmt"
	"maps"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/lru"
)

const (
	// Large is the size in bytes from which a slice is large. One of 100 endpoints, as
	// Kubernetes makes them, has 15 kB.
	Large = 64 << 10
	// maxRecent is how many large slices are kept opened. The largest that is imported
	// has 384 KiB, and takes about three times as much opened.
	maxRecent = 16
	// maxAge is how long an earlier version is returned in place of the present one.
	maxAge = 5 * time.Second
)

// recent are the large slices that were opened last. A slice of 1,000 endpoints takes
// some milliseconds to open, and whatever changes in its import opens it.
var recent = lru.New(maxRecent)

// Owner is one reader of one API server, in which no two slices have the same namespace
// and name. It is an identity and nothing else: a slice that is kept must not keep the
// caches of a connection that was closed.
type Owner struct{ _ byte }

type recentKey struct {
	owner           *Owner // nil: any of this cluster's caches
	namespace, name string
}

// opened is one version of a slice. The string packed is compared by its address first.
type opened struct {
	packed string
	slice  *discoveryv1.EndpointSlice
	at     time.Time
}

// isFor reports whether the version may be returned for s.
func (o *opened) isFor(s *discoveryv1.EndpointSlice, earlier bool) bool {
	if !maps.Equal(o.slice.Labels, s.Labels) {
		return false
	}
	return earlier && time.Since(o.at) < maxAge || o.slice.ResourceVersion == s.ResourceVersion && o.packed == s.GenerateName
}

// OpenRecent is Open, or, if earlier is true, an earlier version of a large slice: one
// with the same name and labels that was opened for the same owner within maxAge and is
// still known.
func OpenRecent(owner *Owner, s *discoveryv1.EndpointSlice, earlier bool) (*discoveryv1.EndpointSlice, error) {
	if s.AddressType != addressType {
		return s, nil
	}
	if len(s.GenerateName) < Large {
		return unmarshal(s)
	}
	key := recentKey{owner, s.Namespace, s.Name}
	if found, ok := recent.Get(key); ok {
		if kept := found.(*opened); kept.isFor(s, earlier) {
			return kept.slice, nil
		}
	}
	out, err := unmarshal(s)
	if err == nil {
		recent.Add(key, &opened{s.GenerateName, out, time.Now()})
	}
	return out, err
}

func unmarshal(s *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	out := &discoveryv1.EndpointSlice{}
	if err := out.Unmarshal([]byte(s.GenerateName)); err != nil {
		return nil, fmt.Errorf("open EndpointSlice %s/%s: %w", s.Namespace, s.Name, err)
	}
	out.TypeMeta = s.TypeMeta
	out.Namespace, out.Name, out.ResourceVersion, out.Labels = s.Namespace, s.Name, s.ResourceVersion, s.Labels
	return out, nil
}
