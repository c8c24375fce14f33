// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTiersAreReadAndShownInOneForm(t *testing.T) {
	for text, want := range map[string]string{
		"self; *": "self; *",
		" self ;region.topology.k8s.io=@SameAsImporter@;  * ": "self; region.topology.k8s.io=@SameAsImporter@; *",
		"b=2, a=1; none":                      "a=1,b=2; none",
		"none":                                "none",
		"*":                                   "*",
		strings.Repeat("self; ", 16) + "none": strings.Repeat("self; ", 16) + "none",
	} {
		tiers, err := ParseTiers(text)
		if err != nil || tiers.String() != want || !tiers.Exist() {
			t.Errorf("%q: got %q, %v", text, tiers, err)
		}
		if again, err := ParseTiers(tiers.String()); err != nil || again.String() != want {
			t.Errorf("%q is not read again: %v", tiers, err)
		}
	}
}

func TestTiersThatCannotBeReadSayWhy(t *testing.T) {
	for text, want := range map[string]string{
		"":                                `the last tier is ""; expected * (all other clusters) or none (no other cluster), as in "self; *"`,
		"local":                           `the last tier is "local"; expected *`,
		"self;":                           `the last tier is ""; expected *`,
		"self; *; region=eu":              `the last tier is "region=eu"; expected *`,
		"*; *":                            `tier 1 is "*", which can only be the last one`,
		"none; *":                         `tier 1 is "none", which can only be the last one`,
		"self; ; *":                       `tier 2 is "", of which "" is no label; expected self, or labels such as "region=eu,tier=@SameAsImporter@"`,
		"region; *":                       `tier 1 is "region", of which "region" is no label`,
		"region=; *":                      `of which "region=" is no label`,
		"region=@Same@; *":                `of which "region=@Same@" is no label`,
		"a=1,a=2; *":                      `tier 1 is "a=1,a=2", and has label "a" twice`,
		"self,a=1; *":                     `of which "self" is no label`,
		"a!=1; *":                         `of which "a!=1" is no label`,
		strings.Repeat("self;", 17) + "*": "there are 17 tiers before the last one; expected at most 16",
		strings.Repeat("a", 5000):         "the value has 5000 bytes; expected at most 2048",
	} {
		tiers, err := ParseTiers(text)
		if err == nil || !strings.Contains(err.Error(), want) || tiers.Exist() {
			t.Errorf("%q: got %q, %v", Bound(text, 60), tiers, err)
		}
	}
	if (Tiers{}).Exist() || (Tiers{}).String() != "" || (Tiers{}).Texts() != nil {
		t.Error("the zero value has tiers")
	}
}

func TestASourceIsInTheFirstTierThatSelectsIt(t *testing.T) {
	self := ClusterLabels{"a", map[string]string{"region": "eu", "zone": "1"}, true}
	eu, us := map[string]string{"region": "eu"}, map[string]string{"region": "us"}
	unknown := ClusterLabels{ID: "b"}
	for _, c := range []struct {
		tiers  string
		source ClusterLabels
		want   string
	}{
		{"self; *", self, "0"},
		{"self; *", ClusterLabels{"b", eu, true}, "1"},
		{"region=us; self; none", self, "1"},
		{"self; region=@SameAsImporter@; *", ClusterLabels{"b", eu, true}, "1"},
		{"self; region=@SameAsImporter@; *", ClusterLabels{"b", us, true}, "2"},
		{"self; region=@SameAsImporter@; none", ClusterLabels{"b", us, true}, "none"},
		{"region=@SameAsImporter@; none", self, "0"},
		{"region=us,zone=1; none", ClusterLabels{"b", us, true}, "none"},
		{"region=us,zone=1; none", ClusterLabels{"b", map[string]string{"region": "us", "zone": "1"}, true}, "0"},
		{"cluster.clusterset.k8s.io=@SameAsImporter@; *", self, "0"},
		{"cluster.clusterset.k8s.io=b; none", ClusterLabels{"b", map[string]string{LabelClusterID: "c"}, true}, "0"},
		// The label is not set here: it selects nothing, not even a cluster without it.
		{"other=@SameAsImporter@; none", ClusterLabels{"b", eu, true}, "none"},
		{"none", self, "none"},
		{"*", self, "0"},
		// What a Peer that is missing had for labels is not known.
		{"self; region=eu; *", unknown, "2"},
		{"region=eu; region=us; self; none", unknown, "1"},
		{"self; none", unknown, "none"},
	} {
		tiers, err := ParseTiers(c.tiers)
		if err != nil {
			t.Fatal(err)
		}
		got := "none"
		if place, found := tiers.TierOf(c.source, self); found {
			got = fmt.Sprint(place)
		}
		if got != c.want {
			t.Errorf("%q: %+v is in tier %s, want %s", c.tiers, c.source, got, c.want)
		}
	}
}

func TestLabelsThatThisClusterLacks(t *testing.T) {
	tiers, err := ParseTiers("self; b=@SameAsImporter@,a=@SameAsImporter@; region=@SameAsImporter@,cluster.clusterset.k8s.io=@SameAsImporter@; c=x; *")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b"}, tiers.Unset(ClusterLabels{"a", map[string]string{"region": "eu"}, true})); diff != "" {
		t.Error(diff)
	}
}

func TestTiersInForceSayWhichServes(t *testing.T) {
	tiers := []string{"self", "region=eu", "*"}
	for want, in := range map[string]TiersInForce{
		"tier 2 of 3 (region=eu) serves, from b, c":                             {Tiers: tiers, Serving: 1, From: []ClusterID{"b", "c"}},
		"no cluster of any tier has a ready endpoint":                           {Tiers: tiers, Serving: -1},
		"tier 1 of 3 (self) serves, from a; no Node of this cluster has a zone": {Tiers: tiers, From: []ClusterID{"a"}, Limit: "no Node of this cluster has a zone"},
	} {
		if got := in.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
