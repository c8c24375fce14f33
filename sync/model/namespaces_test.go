// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strings"
	"testing"
)

func TestNamespacesContain(t *testing.T) {
	for _, c := range []struct {
		list, name string
		want       bool
	}{
		{"*", "shop", true}, {"shop", "shop", true}, {"shop", "shops", false}, {"team-*", "team-a", true}, {"team-*", "team-", true}, {"team-*", "myteam-a", false},
		{"a,b", "b", true}, {"[a-c]x", "bx", true}, {"[a-c]x", "dx", false}, {"team-?", "team-10", false},
	} {
		if Namespaces(strings.Split(c.list, ",")).Contains(c.name) != c.want {
			t.Errorf("%q contains %q: %v", c.list, c.name, !c.want)
		}
	}
	if !Namespaces(nil).Contains("any") {
		t.Error("no list does not stand for all")
	}
}
