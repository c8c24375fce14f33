// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/sync/model"
)

// label draws RFC 1123 labels, often of words and dashes that could be taken
// for the separators of composed names.
func label() *rapid.Generator[string] {
	awkward := rapid.Custom(func(t *rapid.T) string {
		words := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "to", "x", "comity", "derived", "1"}), 1, 6).Draw(t, "words")
		return strings.Join(words, rapid.SampledFrom([]string{"-", "--"}).Draw(t, "dash"))
	})
	long := rapid.Custom(func(t *rapid.T) string {
		return strings.Repeat("l", rapid.IntRange(54, 62).Draw(t, "length")) + rapid.StringMatching(`[a-z0-9]`).Draw(t, "last")
	})
	return rapid.OneOf(awkward, long, rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?`))
}

func cluster(t *rapid.T, name string) model.ClusterID { return model.ClusterID(label().Draw(t, name)) }

func TestExchangeNamespacesAreValidAndNeverMeet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to, from2, to2 := cluster(t, "from"), cluster(t, "to"), cluster(t, "from2"), cluster(t, "to2")
		made := map[string]string{} // name -> whose
		for _, n := range []struct{ name, whose string }{
			{model.ExchangeNamespace(from), "from " + string(from)},
			{model.ExchangeNamespace(from2), "from " + string(from2)},
			{model.ScopedExchangeNamespace(from, to), "from " + string(from) + " to " + string(to)},
			{model.ScopedExchangeNamespace(from2, to2), "from " + string(from2) + " to " + string(to2)},
			{model.ScopedExchangeNamespace(from, to2), "from " + string(from) + " to " + string(to2)},
			{model.ScopedExchangeNamespace(to, from), "from " + string(to) + " to " + string(from)},
		} {
			if problems := validation.IsDNS1123Label(n.name); len(problems) > 0 {
				t.Fatalf("%q (%s) is no namespace: %v", n.name, n.whose, problems)
			}
			if whose, taken := made[n.name]; taken && whose != n.whose {
				t.Fatalf("%q is both of %s and of %s", n.name, whose, n.whose)
			}
			made[n.name] = n.whose
		}
	})
}

func TestExchangeNamespacesThatLookAlike(t *testing.T) {
	names := map[string]string{}
	for whose, name := range map[string]string{
		"a-to-b, to all":    model.ExchangeNamespace("a-to-b"),
		"a, to b":           model.ScopedExchangeNamespace("a", "b"),
		"a-to-b, to c":      model.ScopedExchangeNamespace("a-to-b", "c"),
		"a, to b-to-c":      model.ScopedExchangeNamespace("a", "b-to-c"),
		"to, to to":         model.ScopedExchangeNamespace("to", "to"),
		"to-to-to, to all":  model.ExchangeNamespace("to-to-to"),
		"a-to, to b":        model.ScopedExchangeNamespace("a-to", "b"),
		"a, to to-b":        model.ScopedExchangeNamespace("a", "to-b"),
		"a-to-to-b, to all": model.ExchangeNamespace("a-to-to-b"),
		// An id chosen to look like the hash that stands for another one.
		"x-hash, to all": model.ExchangeNamespace(model.ClusterID(strings.TrimPrefix(model.ExchangeNamespace("a-to-b"), "comity-"))),
	} {
		if other, taken := names[name]; taken {
			t.Errorf("%q belongs to %s and to %s", name, whose, other)
		}
		names[name] = whose
	}
}

func TestDerivedNamesAreThoseOfTheSveltosPipeline(t *testing.T) {
	for name, want := range map[string]string{ // as zlib's adler32 and Sprig's adler32sum print it
		"web-service": "derived-435094621",
		"svc-adb":     model.DerivedName("svc-bbc"),
		"":            "derived-1",
	} {
		if got := model.DerivedName(name); got != want {
			t.Errorf("%q: got %s, want %s", name, got, want)
		}
	}
	if model.AlternateDerivedName("svc-adb") == model.AlternateDerivedName("svc-bbc") {
		t.Error("the names for a collision collide themselves")
	}
}

func TestNamesOfEveryLengthAreValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name, id, source := label().Draw(t, "name"), cluster(t, "cluster"), rapid.StringMatching(`[a-z0-9]([a-z0-9]|\.[a-z0-9]){0,120}`).Draw(t, "source")
		for _, derived := range []string{model.DerivedName(name), model.AlternateDerivedName(name)} {
			if problems := validation.IsDNS1035Label(derived); len(problems) > 0 {
				t.Fatalf("%q is no Service name: %v", derived, problems)
			}
			for _, plain := range []bool{true, false} {
				if slice := model.SliceName(derived, plain, id, source); len(validation.IsDNS1123Subdomain(slice)) > 0 {
					t.Fatalf("%q is no slice name", slice)
				}
			}
		}
		for _, record := range []string{model.RecordName(string(id), name), model.RecordSliceName(string(id), source)} {
			if problems := validation.IsDNS1123Subdomain(record); len(problems) > 0 {
				t.Fatalf("%q is no record name: %v", record, problems)
			}
		}
	})
}

func TestSlicesOfDifferentServicesAndClustersNeverMeet(t *testing.T) {
	type owner struct {
		derived string
		plain   bool
		cluster model.ClusterID
	}
	rapid.Check(t, func(t *rapid.T) {
		made := map[string]owner{}
		names := []string{label().Draw(t, "name"), label().Draw(t, "other"), "svc-adb", "svc-bbc"}
		clusters := []model.ClusterID{cluster(t, "cluster"), cluster(t, "another"), "a"}
		for _, name := range names {
			for _, derived := range []string{model.DerivedName(name), model.AlternateDerivedName(name)} {
				for _, id := range clusters {
					for _, plain := range []bool{true, false} {
						own := owner{derived, plain, id}
						if derived == model.AlternateDerivedName(name) {
							own.plain = false // there the plain name is not given out
						}
						at := model.SliceName(derived, plain, id, "source")
						if other, taken := made[at]; taken && other != own {
							t.Fatalf("%q belongs to %+v and %+v", at, own, other)
						}
						made[at] = own
					}
				}
			}
		}
	})
}

func TestRecordsOfDifferentExportsNeverMeet(t *testing.T) {
	// a-b in c and a in b-c shared one name elsewhere, and lost an import by it.
	if model.RecordName("c", "a-b") == model.RecordName("b-c", "a") {
		t.Error("a-b in c and a in b-c share a record")
	}
	rapid.Check(t, func(t *rapid.T) {
		ns, name, ns2, name2 := label().Draw(t, "ns"), label().Draw(t, "name"), label().Draw(t, "ns2"), label().Draw(t, "name2")
		if (ns != ns2 || name != name2) && model.RecordName(ns, name) == model.RecordName(ns2, name2) {
			t.Fatalf("%s/%s and %s/%s share a record", ns, name, ns2, name2)
		}
		slice, slice2 := rapid.StringMatching(`[a-z0-9]([a-z0-9]|\.[a-z0-9]){0,126}`).Draw(t, "slice"), rapid.StringMatching(`[a-z0-9]([a-z0-9]|\.[a-z0-9]){0,126}`).Draw(t, "slice2")
		if (ns != ns2 || slice != slice2) && model.RecordSliceName(ns, slice) == model.RecordSliceName(ns2, slice2) {
			t.Fatalf("%s/%s and %s/%s share a copy", ns, slice, ns2, slice2)
		}
	})
}

func TestNoExchangeNamespaceIsComitysOwn(t *testing.T) {
	if got := model.ExchangeNamespace("system"); got == "comity-system" {
		t.Errorf("cluster system publishes in %s, where the peers' Secrets are", got)
	}
}
