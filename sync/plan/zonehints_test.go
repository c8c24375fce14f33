// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/comity-mcs/comity/sync/model"
)

func zonesOf(h *discoveryv1.EndpointHints) []string {
	if h == nil {
		return nil
	}
	var list []string
	for _, z := range h.ForZones {
		list = append(list, z.Name)
	}
	return list
}

func TestZoneHints(t *testing.T) {
	text := func(s string) *string { return &s }
	near, zones := text("PreferSameZone"), []string{"z1", "z2"}
	inTiers := map[model.ClusterID]model.Traffic{"a": model.Preferred, "b": model.Preferred}
	for _, c := range []struct {
		name         string
		traffic      map[model.ClusterID]model.Traffic
		distribution *string
		preferred    sets.Set[string] // zones with a ready endpoint
		cluster      model.ClusterID
		zone         *string
		want         []string
	}{
		{"nothing is asked for", nil, nil, nil, "b", text("z1"), nil},
		{"a source that is not Served has no hint for that alone", map[model.ClusterID]model.Traffic{"b": model.LastResort}, nil, nil, "b", text("z1"), nil},
		{"PreferClose: the own zone", nil, text("PreferClose"), nil, "b", text("z7"), []string{"z7"}},
		{"PreferSameZone: the own zone", nil, near, nil, "a", text("z7"), []string{"z7"}},
		{"PreferSameNode falls back to the zone", nil, text("PreferSameNode"), nil, "a", text("z7"), []string{"z7"}},
		{"an endpoint without zone has no hint", nil, near, nil, "a", nil, nil},
		{"a zone that is no legal hint is none", nil, near, nil, "b", text("not a zone"), nil},
		{"an unknown distribution asks for nothing", nil, text("example.com/close"), nil, "b", text("z1"), nil},
		{"tiers: those that serve go to all zones", inTiers, nil, nil, "a", text("z9"), []string{"z1", "z2"}},
		{"tiers: others go to none of them", inTiers, nil, nil, "c", text("z1"), []string{"c.clusterset.local"}},
		{"tiers: no endpoint of the tier is ready: each may be used in all zones", inTiers, near, nil, "a", text("z1"), []string{"z1", "z2"}},
		{"tiers: each zone has its own", inTiers, near, sets.New("z1", "z2"), "a", text("z1"), []string{"z1"}},
		{"tiers: a zone that has none gets all of the tier", inTiers, near, sets.New("z1"), "b", text("z1"), []string{"z1", "z2"}},
		{"tiers: one of no zone here serves those that have none", inTiers, near, sets.New("z1"), "b", text("z9"), []string{"z2"}},
		{"tiers: one of no zone here, where each zone has its own", inTiers, near, sets.New("z1", "z2"), "b", nil, []string{"b.clusterset.local"}},
	} {
		r := newHintRule(&model.Import{ServiceProperties: model.ServiceProperties{TrafficDistribution: c.distribution}}, c.traffic, zones, c.preferred)
		if diff := cmp.Diff(c.want, zonesOf(r.hints(c.cluster, c.zone))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	r := newHintRule(&model.Import{}, inTiers, []string{"c.clusterset.local"}, nil)
	if got := zonesOf(r.hints("c", nil)); len(got) != 1 || got[0] == "c.clusterset.local" {
		t.Errorf("the zone of a node is taken for one that does not exist: %v", got)
	}
}

func TestHintsAreLegalHoweverLongTheIdAndManyTheZones(t *testing.T) {
	var zones []string
	for i := range 9 {
		zones = append(zones, fmt.Sprint("zone-", i))
	}
	r := newHintRule(&model.Import{}, map[model.ClusterID]model.Traffic{"a": model.Preferred}, zones, nil)
	if got := zonesOf(r.hints("a", nil)); len(got) != maxHintedZones || !r.tooManyZones() {
		t.Errorf("%d hints, too many zones: %t", len(got), r.tooManyZones())
	}
	seen := map[string]bool{}
	for _, id := range []string{"b", strings.Repeat("b", 46), strings.Repeat("b", 47), strings.Repeat("b", 62) + "c", strings.Repeat("b", 63)} {
		for _, zone := range zonesOf(r.hints(model.ClusterID(id), nil)) {
			if problems := validation.IsValidLabelValue(zone); len(problems) > 0 || seen[zone] {
				t.Errorf("%s: hint %q, problems %v, seen before: %t", id, zone, problems, seen[zone])
			}
			seen[zone] = true
		}
	}
}
