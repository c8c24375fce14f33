// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"slices"
	"strings"
	"testing"
)

func TestNamespacesOfAFlag(t *testing.T) {
	for text, want := range map[string][]string{
		"shop": {"shop"}, "shop,team-*": {"shop", "team-*"}, " shop , *": {"shop", "*"}, "team-?,[a-c]*": {"team-?", "[a-c]*"}, "[^a]": {"[^a]"},
		"": nil, " ": nil, ",": nil, "shop,": nil, "shop,,team": nil, "**": nil, "team-**": nil, "Shop": nil, "shop.web": nil, "a/b": nil,
		"team_*": nil, "Team-*": nil, "[a": nil, "[]": nil, `team\*`: nil, "team *": nil, "-shop": nil, strings.Repeat("a", 64): nil, "é*": nil,
		strings.Repeat("a,", 256) + "a": nil,
	} {
		got, err := parseNamespaces(text)
		if (err == nil) != (want != nil) || !slices.Equal(got, want) {
			t.Errorf("%.40q: got %q, %v", text, got, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "expected ") || !strings.Contains(err.Error(), "remedy: ")) {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}
