// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"
	"strings"
	"testing"
)

func TestParseNamespaces(t *testing.T) {
	for text, want := range map[string][]string{
		"shop": {"shop"}, "shop,team-*": {"shop", "team-*"}, " shop , *": {"shop", "*"}, "team-?,[a-c]*": {"team-?", "[a-c]*"}, "[^a]": {"[^a]"},
		"": nil, " ": nil, ",": nil, "shop,": nil, "shop,,team": nil, "**": nil, "team-**": nil, "Shop": nil, "shop.web": nil, "a/b": nil,
		"team_*": nil, "Team-*": nil, "[a": nil, "[]": nil, `team\*`: nil, "team *": nil, "-shop": nil, strings.Repeat("a", 64): nil, "é*": nil,
		strings.Repeat("a,", 256) + "a": nil,
	} {
		got, err := ParseNamespaces(text)
		if (err == nil) != (want != nil) || !slices.Equal(got, want) {
			t.Errorf("%.40q: got %q, %v", text, got, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "expected ") || !strings.Contains(err.Error(), "remedy: ")) {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}

func TestNamespacesContain(t *testing.T) {
	for _, c := range []struct {
		list, name string
		want       bool
	}{
		{"*", "shop", true}, {"shop", "shop", true}, {"shop", "shops", false}, {"team-*", "team-a", true}, {"team-*", "team-", true}, {"team-*", "myteam-a", false},
		{"a,b", "b", true}, {"[a-c]x", "bx", true}, {"[a-c]x", "dx", false}, {"team-?", "team-10", false},
	} {
		list, err := ParseNamespaces(c.list)
		if err != nil || list.Contains(c.name) != c.want {
			t.Errorf("%q contains %q: %v, %v", c.list, c.name, !c.want, err)
		}
	}
	if !Namespaces(nil).Contains("any") {
		t.Error("no list does not stand for all")
	}
}
