// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/sync/model"
)

func TestACopyIsCutIntoPartsOfWhichAChangeTouchesOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		source := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
		source.Namespace, source.Name = "shop", "web-abcde"
		next := 0
		add := func() {
			source.Endpoints = append(source.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.1.%d.%d", next/250, next%250)}})
			next++
		}
		for range rapid.IntRange(0, 450).Draw(t, "endpoints") {
			add()
		}
		var current []*discoveryv1.EndpointSlice
		cut := func() map[string]*discoveryv1.EndpointSlice {
			copied, ok := CopySlice(web, source, model.AllPorts())
			if !ok {
				t.Fatal("the slice is not copied")
			}
			current = Cut(web, copied)
			if again := Cut(web, copied); !equality.Semantic.DeepEqual(again, current) {
				t.Fatal("what was published is cut in another way")
			}
			parts, seen := map[string]*discoveryv1.EndpointSlice{}, map[string]bool{}
			for _, part := range current {
				if len(part.Endpoints) > maxEndpoints {
					t.Fatalf("%s has %d endpoints", part.Name, len(part.Endpoints))
				}
				if _, of, ok := SliceKey(part); !ok || part.Name != model.RecordSliceName("shop", of) || parts[part.Name] != nil {
					t.Fatalf("%s counts as a copy of %q", part.Name, of)
				}
				parts[part.Name] = part
				for _, endpoint := range part.Endpoints {
					seen[endpoint.Addresses[0]] = true
				}
			}
			if len(seen) != len(source.Endpoints) {
				t.Fatalf("%d of %d endpoints are published", len(seen), len(source.Endpoints))
			}
			return parts
		}
		before := cut()
		for range 5 {
			change := rapid.SampledFrom([]string{"add", "remove", "reorder"}).Draw(t, "change")
			switch n := len(source.Endpoints); {
			case change == "add" || n == 0:
				add()
			case change == "remove":
				at := rapid.IntRange(0, n-1).Draw(t, "at")
				source.Endpoints = slices.Delete(slices.Clone(source.Endpoints), at, at+1)
			default:
				slices.Reverse(source.Endpoints)
			}
			now, changed := cut(), 0
			for name := range now {
				if before[name] == nil || !equality.Semantic.DeepEqual(sortedAddresses(before[name]), sortedAddresses(now[name])) {
					changed++
				}
			}
			for name := range before {
				if now[name] == nil {
					changed++
				}
			}
			// Most changes do; those by which there are twice or half as many parts as before change all.
			if changed > 1 && len(now) == len(before) {
				t.Fatalf("%d parts changed after %s", changed, change)
			}
			before = now
		}
	})
}

// sortedAddresses are the addresses of a slice in a fixed order: that of the source may change.
func sortedAddresses(s *discoveryv1.EndpointSlice) []string {
	var out []string
	for _, endpoint := range s.Endpoints {
		out = append(out, endpoint.Addresses...)
	}
	slices.Sort(out)
	return out
}

func TestTheNameOfAPartIsANameOfASlice(t *testing.T) {
	long := ""
	for len(long) < 252 {
		long += "abcdefg."
	}
	if got := CutFrom(partName("web-abcde", 12)); got != "web-abcde" || CutFrom(got) != got {
		t.Errorf("a part of web-abcde is cut from %s", got)
	}
	for _, source := range []string{"web-abcde", long + "x"} {
		part := &discoveryv1.EndpointSlice{}
		part.Labels = map[string]string{model.LabelExportNamespace: "shop", model.LabelExportName: "web"}
		part.Annotations = map[string]string{model.AnnotationSourceSlice: partName(source, 12)}
		if _, _, ok := SliceKey(part); !ok {
			t.Errorf("%q is no name", partName(source, 12))
		}
	}
}
