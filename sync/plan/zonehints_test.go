// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

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
	for _, c := range []struct {
		name         string
		local        bool
		distribution *string
		zones        []string
		cluster      model.ClusterID
		zone         *string
		want         []string
	}{
		{"nothing is asked for", false, nil, []string{"z1"}, "b", text("z1"), nil},
		{"local: own endpoints go to all zones", true, nil, []string{"z1", "z2"}, "a", text("z9"), []string{"z1", "z2"}},
		{"local: others go to none of them", true, nil, []string{"z1", "z2"}, "b", text("z1"), []string{"b.clusterset.local"}},
		{"local: a node's zone is never taken for nowhere", true, nil, []string{"b.clusterset.local"}, "b", nil, []string{"b22881217a0a2a8c.clusterset.local"}},
		{"local without zones: no hints at all", true, text("PreferSameZone"), nil, "a", text("z1"), nil},
		{"local comes before the distribution", true, text("PreferClose"), []string{"z1"}, "b", text("z1"), []string{"b.clusterset.local"}},
		{"PreferClose: the own zone", false, text("PreferClose"), nil, "b", text("z7"), []string{"z7"}},
		{"PreferSameZone: the own zone", false, text("PreferSameZone"), nil, "a", text("z7"), []string{"z7"}},
		{"PreferSameNode falls back to the zone", false, text("PreferSameNode"), nil, "a", text("z7"), []string{"z7"}},
		{"an endpoint without zone has no hint", false, text("PreferSameZone"), nil, "a", nil, nil},
		{"a zone that is no legal hint is none", false, text("PreferSameZone"), nil, "b", text("not a zone"), nil},
		{"an unknown distribution asks for nothing", false, text("example.com/close"), nil, "b", text("z1"), nil},
	} {
		r := newHintRule(&model.Import{PreferLocal: c.local, ServiceImportSpec: mcsv1beta1.ServiceImportSpec{TrafficDistribution: c.distribution}}, "a", c.zones)
		if diff := cmp.Diff(c.want, zonesOf(r.hints(c.cluster, c.zone))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestHintsAreLegalHoweverLongTheIdAndManyTheZones(t *testing.T) {
	var zones []string
	for i := range 9 {
		zones = append(zones, fmt.Sprint("zone-", i))
	}
	r := newHintRule(&model.Import{PreferLocal: true}, "a", zones)
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
