// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"fmt"
	"slices"
)

// snapshot is a set of policies that are in use. It never changes.
type snapshot struct {
	// list is what was loaded.
	list []Policy
	// all are the policies of all stages, sorted by name, those that cannot be used and those that
	// are required and missing among them.
	all []*version
	// versions are the same by name; of two with one name the one that can be used.
	versions map[string]*version
	digest   string
}

// newSnapshot has the versions that list became.
func newSnapshot(list []Policy, versions []*version) *snapshot {
	snap := &snapshot{list: slices.Clone(list), all: slices.Clone(versions), versions: map[string]*version{}, digest: digestOf(versions)}
	slices.SortStableFunc(snap.all, func(a, b *version) int { return cmp.Compare(a.Name, b.Name) })
	for _, v := range snap.all {
		if v.err == nil || snap.versions[v.Name] == nil {
			snap.versions[v.Name] = v
		}
	}
	return snap
}

// digestOf names a set of versions, in any order: sets that answer alike have one
// digest.
func digestOf(versions []*version) string {
	var sources []string
	for _, v := range versions {
		sources = append(sources, sum([]string{v.Name, v.source, fmt.Sprint(v.err)}))
	}
	slices.Sort(sources)
	return sum(sources)
}
