// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decision_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/comity-mcs/comity/policies/decision"
)

func TestAnAudienceWithoutClusters(t *testing.T) {
	members := func(n int) (ids []string) {
		for i := range n {
			ids = append(ids, fmt.Sprintf("m-%02d", i))
		}
		return ids
	}
	of := func(all bool, ids ...string) decision.Audience {
		return decision.Audience{Self: "a", All: all, Clusters: ids}
	}
	for name, tc := range map[string]struct {
		audience   decision.Audience
		excluded   []string
		left, lost []string
		published  bool
	}{
		"nothing is excluded":                    {of(true, "b", "c"), nil, []string{"b", "c"}, nil, true},
		"one of a scope":                         {of(false, "b", "c"), []string{"c", "z"}, []string{"b"}, []string{"c"}, true},
		"every cluster of a scope":               {of(false, "b", "c"), []string{"b", "c"}, nil, []string{"b", "c"}, false},
		"what is no member":                      {of(true, "b"), []string{"z"}, []string{"b"}, nil, true},
		"there are no members, so none is lost":  {of(true), []string{"z"}, nil, nil, true},
		"the exporter itself":                    {of(false, "a", "b"), []string{"a"}, []string{"a", "b"}, nil, true},
		"as many as can be left of all members":  {of(true, members(33)...), []string{"m-32"}, members(32), []string{"m-32"}, true},
		"one more":                               {of(true, append(members(33), "x")...), []string{"x"}, members(33), []string{"x"}, false},
		"a scope is a list of clusters as it is": {of(false, append(members(33), "x")...), []string{"x"}, members(33), []string{"x"}, true},
		"more, of which none is excluded":        {of(true, members(40)...), []string{"z"}, members(40), nil, true},
		"every member":                           {of(true, "b"), []string{"b"}, nil, []string{"b"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			left, lost, published := tc.audience.Without(tc.excluded)
			if diff := cmp.Diff([][]string{tc.left, tc.lost}, [][]string{left, lost}); diff != "" || published != tc.published {
				t.Errorf("published %t, left and lost (-want +got):\n%s", published, diff)
			}
		})
	}
}
