// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// spread is count endpoints in slices of at most that many, as a cluster that
// runs Kubernetes could hold them.
func spread(count, most int) []*discoveryv1.EndpointSlice {
	var list []*discoveryv1.EndpointSlice
	for first := 0; first < count; first += most {
		var addresses []string
		for i := first; i < min(count, first+most); i++ {
			addresses = append(addresses, fmt.Sprintf("10.2.%d.%d", i/250, i%250+1))
		}
		list = append(list, copyOf(slice(fmt.Sprintf("web-%d-%d", most, first), []string{"http"}, addresses...)))
	}
	return list
}

// TestServicesGrowAndShrinkWithoutAGap asks after every single write whether
// somebody could still be served. (Fault 14.)
func TestServicesGrowAndShrinkWithoutAGap(t *testing.T) {
	for _, most := range []int{100, 1000} {
		w := newWorld()
		for _, count := range []int{999, 1000, 1001, 5000, 999, 0} {
			in := importOf("web").export("b", http(), spread(count, most)...).in()
			for range 4 {
				in.Current = w.current(in.Key)
				had := readyOf(w)["b"] > 0
				for _, a := range plan.Import(in).Actions {
					if err := w.do(a); err != nil {
						t.Fatal(err)
					}
					if had && count > 0 && readyOf(w)["b"] == 0 {
						t.Fatalf("nobody is served after %s", a)
					}
				}
			}
			if got := readyOf(w)["b"]; got != count {
				t.Errorf("%d endpoints, want %d", got, count)
			}
			for ref, o := range w.objects {
				if s, is := o.(*discoveryv1.EndpointSlice); is && len(s.Endpoints) > 1000 {
					t.Errorf("%s has %d endpoints", ref, len(s.Endpoints))
				}
			}
		}
		if slices := w.snapshot(func(o plan.Object) bool { _, is := o.(*discoveryv1.EndpointSlice); return is }); len(slices) > 0 {
			t.Errorf("%d slices are left of none", len(slices))
		}
	}
}

// label draws an RFC 1123 label, often of a length at a limit.
func label(t *rapid.T, what string) string {
	length := rapid.SampledFrom([]int{1, 2, 17, 62, 63}).Draw(t, what+" length")
	letters := rapid.SliceOfN(rapid.SampledFrom([]byte("ab-9")), length, length).Draw(t, what)
	letters[0], letters[length-1] = 'a', 'z'
	return string(letters)
}

// TestNamesAreLegalAndDistinct for all legal names of Services, clusters and
// source slices. (Fault 13.)
func TestNamesAreLegalAndDistinct(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		name := label(t, "service")
		set := importOf(name)
		ids := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) string { return label(t, "cluster") }), 1, 4, func(s string) string { return s }).Draw(t, "clusters")
		count := 0
		for _, id := range ids {
			var sources []*discoveryv1.EndpointSlice
			for i := range rapid.IntRange(1, 3).Draw(t, "slices") {
				source := fmt.Sprintf("%s-%d", strings.Repeat("s", rapid.SampledFrom([]int{1, 60, 251}).Draw(t, "source")), i)
				sources = append(sources, copyOf(slice(source, []string{"http"}, "10.2.0.1")))
				count++
			}
			set.export(model.ClusterID(id), http(), sources...)
		}
		in := set.in()
		in.Self, in.LocalCluster.Zones, in.Traffic = "self", []string{"z1"}, map[model.ClusterID]model.Traffic{"self": model.Preferred}
		if _, err := w.converge(in); err != nil {
			t.Fatal(err)
		}
		found := 0
		for ref, o := range w.objects {
			s, is := o.(*discoveryv1.EndpointSlice)
			if !is {
				continue
			}
			found++
			problems := validation.IsDNS1123Subdomain(s.Name)
			for key, value := range s.Labels {
				problems = append(problems, slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value))...)
			}
			for _, e := range s.Endpoints {
				problems = append(problems, validation.IsValidLabelValue(e.Hints.ForZones[0].Name)...)
			}
			if len(problems) > 0 {
				t.Fatalf("%s: %v", ref, problems)
			}
		}
		if found != count {
			t.Fatalf("%d slices of %d", found, count)
		}
	})
}

// TestAnEndpointWithoutAZoneChangesNoOtherSlice: hints look at one endpoint alone, so that an
// endpoint that comes without a zone changes no other slice.
func TestAnEndpointWithoutAZoneChangesNoOtherSlice(t *testing.T) {
	set := func(zone *string) *clusterset {
		s := importOf("web").export("b", http(), spread(300, 100)...).edit(func(e *model.Export) { e.TrafficDistribution = ptr("PreferSameZone") })
		s.slices["b"][1].Endpoints[7].Zone = zone
		return s
	}
	w := imported(t, set(ptr("zone-1")))
	if _, err := w.converge(set(nil).in()); err != nil {
		t.Fatal(err)
	}
	if len(w.writes) != 1 {
		t.Errorf("writes: %v, want one", w.writes)
	}
}
