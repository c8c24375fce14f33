// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/sync/model"
)

func tiersFrom(t interface{ Fatal(...any) }, text string) model.Tiers {
	tiers, err := model.ParseTiers(text)
	if err != nil {
		t.Fatal(err)
	}
	return tiers
}

var uses = map[model.Traffic]string{
	model.Served: "served", model.Preferred: "preferred", model.LastResort: "last resort", model.Omitted: "omitted",
}

// a is this cluster, b and c are in its region, d and e in another one.
var region = map[model.ClusterID]string{"a": "eu", "b": "eu", "c": "eu", "d": "us", "e": "us"}

func labeled(id model.ClusterID) model.ClusterLabels {
	return model.ClusterLabels{ID: id, Labels: map[string]string{"region": region[id]}, Known: true}
}

func TestTheFirstTierWithAReadyEndpointServes(t *testing.T) {
	const three = "self; region=@SameAsImporter@; *"
	for _, c := range []struct {
		name, tiers, available string
		means                  tierMeans
		serving                int
		want                   string
	}{
		{"this cluster serves, the region is next", three, "a b c d e", byHints, 0, "a preferred, b served, c served, d last resort, e last resort"},
		{"the region serves, all others are next", three, "c d", byHints, 1, "a preferred, b preferred, c preferred, d served, e served"},
		{"nothing is ready in between", three, "a e", byHints, 0, "a preferred, b served, c served, d served, e served"},
		{"only the last tier has an endpoint", three, "d", byHints, 2, "a preferred, b preferred, c preferred, d served, e served"},
		{"only that has one, and zones have their own", three, "d", byZones, 2, "a preferred, b preferred, c preferred, d preferred, e preferred"},
		{"only the second has one", three, "b", byHints, 1, "a preferred, b served, c served, d last resort, e last resort"},
		{"only the first has one", three, "a", byHints, 0, "a preferred, b served, c served, d served, e served"},
		{"nothing is ready: as if all were", three, "", byHints, -1, "a preferred, b served, c served, d last resort, e last resort"},
		{"outside of the tiers nothing is used", "self; region=eu; none", "d e", byHints, -1, "a preferred, b served, c served, d omitted, e omitted"},
		{"without selectors all are one tier", "*", "a d", byHints, 0, "a preferred, b preferred, c preferred, d preferred, e preferred"},
		{"without zones", three, "a b d", byReadiness, 0, "a served, b last resort, c last resort, d last resort, e last resort"},
		{"without zones, and without this cluster", three, "b d", byReadiness, 1, "a served, b served, c served, d last resort, e last resort"},
		{"where nothing orders", "region=us; none", "a d", unordered, 0, "a omitted, b omitted, c omitted, d served, e served"},
	} {
		var sources []tierSource
		for _, id := range slices.Sorted(maps.Keys(region)) {
			sources = append(sources, inTier(tiersFrom(t, c.tiers), labeled(id), labeled("a"), strings.Contains(c.available, string(id))))
		}
		traffic, serving := inTiers(sources, c.means)
		var got []string
		for _, id := range slices.Sorted(maps.Keys(traffic)) {
			got = append(got, string(id)+" "+uses[traffic[id]])
		}
		if text := strings.Join(got, ", "); text != c.want || serving != c.serving {
			t.Errorf("%s: got %q, tier %d; want %q, tier %d", c.name, text, serving, c.want, c.serving)
		}
	}
}

// Whatever is ready where: no source outside of the tiers is used; where a tier has a ready
// endpoint, one serves; and of what kube-proxy may use at once, none is in a later tier.
func TestTiersHoldTheirInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		selector := rapid.SampledFrom([]string{"self", "region=eu", "region=us", "region=@SameAsImporter@", "region=none", "region=us,x=y"})
		text := strings.Join(append(rapid.SliceOfN(selector, 0, 4).Draw(t, "tiers"), rapid.SampledFrom([]string{"*", "none"}).Draw(t, "last")), ";")
		tiers := tiersFrom(t, text)
		var sources []tierSource
		for _, id := range slices.Sorted(maps.Keys(region)) {
			source := labeled(id)
			if source.Known = id == "a" || rapid.IntRange(0, 4).Draw(t, "known") > 0; !source.Known {
				source.Labels = nil
			}
			sources = append(sources, inTier(tiers, source, labeled("a"), rapid.Bool().Draw(t, "available")))
		}
		means := rapid.SampledFrom([]tierMeans{byHints, byZones, byReadiness, unordered}).Draw(t, "means")
		traffic, serving := inTiers(sources, means)
		first := -1 // the first tier with a source that is available
		for _, s := range sources {
			if s.tier >= 0 && s.available && (first < 0 || s.tier < first) {
				first = s.tier
			}
		}
		if serving != first {
			t.Fatalf("tier %d serves, expected %d", serving, first)
		}
		for _, s := range sources {
			place, in := s.tier, s.tier >= 0
			use := traffic[s.id]
			if (use == model.Omitted) == in {
				t.Fatalf("%s is in a tier: %t; its endpoints are %s", s.id, in, uses[use])
			}
			prefers := slices.ContainsFunc(sources, func(s tierSource) bool { return s.available && traffic[s.id] == model.Preferred })
			isUsed := s.available && (use == model.Preferred || use == model.Served && !prefers)
			if s.available && in && means != unordered && isUsed != (place == serving) {
				t.Fatalf("tier %d serves; %s is in tier %d, and used: %t", serving, s.id, place, isUsed)
			}
		}
	})
}

func TestThePlaceThatIsSetFirstHasTheTiers(t *testing.T) {
	key := types.NamespacedName{Namespace: "shop", Name: "web"}
	for _, c := range []struct {
		name, imported, exported, namespace, standing string
		want, problem                                 string
	}{
		{"nothing is set", "", "", "", "", "", ""},
		{"the Namespace", "", "", "self; *", "", "self; *", ""},
		{"the export comes before the Namespace", "", "region=eu; none", "self; *", "", "region=eu; none", ""},
		{"the ServiceImport comes before both", "*", "region=eu; none", "self; *", "", "*", ""},
		{"what stands is no longer asked for", "", "", "", "self; *", "", ""},
		{"one that cannot be read leaves what stands", "self", "*", "*", "region=eu; none", "region=eu; none",
			`ServiceImport shop/web, annotation comity.dev/tiers: the last tier is "self"; expected * (all other clusters) or none (no other cluster), as in "self; *"; "region=eu; none" stays in force until that is corrected`},
		{"where nothing stands, it is ignored", "", "eu; *", "self; *", "", "self; *",
			`cluster b, ServiceExport shop/web, annotation comity.dev/tiers: tier 1 is "eu", of which "eu" is no label; expected self, or labels such as "region=eu,tier=@SameAsImporter@"; it is ignored until that is corrected`},
		{"of a Namespace", "", "", "none; none", "", "",
			`Namespace shop, annotation comity.dev/tiers: tier 1 is "none", which can only be the last one; it is ignored until that is corrected`},
	} {
		annotated := func(text string) map[string]string {
			if text == "" {
				return nil
			}
			return map[string]string{model.AnnotationTiers: text}
		}
		v := ImportView{Self: "a", Local: LocalExport{Key: key, Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: annotated(c.namespace)}}}}
		v.Current.Import = &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: annotated(c.imported),
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: model.FieldOwner, Operation: metav1.ManagedFieldsOperationApply}}}}
		tiers, problems := v.tiersFor("b", c.exported, c.standing)
		var messages []string
		for _, p := range problems {
			messages = append(messages, p.Message)
		}
		if text := strings.Join(messages, "|"); tiers.String() != c.want || text != c.problem {
			t.Errorf("%s: got %q, %q; want %q, %q", c.name, tiers, text, c.want, c.problem)
		}
		v.Current.Import.ManagedFields = nil // it is somebody else's
		if tiers, _ := v.tiersFor("b", "", ""); c.imported != "" && tiers.String() == c.imported {
			t.Errorf("%s: a foreign ServiceImport decides", c.name)
		}
	}
}

func TestWhereTiersDoNotOrderTheConditionSaysWhy(t *testing.T) {
	local := corev1.ServiceInternalTrafficPolicyLocal
	for _, c := range []struct {
		name       string
		desired    model.Import
		zones      []string
		maintained bool
		means      tierMeans
		limit      string
	}{
		{"hints work", model.Import{}, []string{"z"}, false, byHints, "this cluster has no label continent"},
		{"no zones", model.Import{}, nil, false, byReadiness, "no Node of this cluster has a zone"},
		{"a selector", model.Import{}, []string{"z"}, true, byReadiness, "selects Pods of this cluster"},
		{"headless", model.Import{ServiceProperties: model.ServiceProperties{Type: mcsv1beta1.Headless}}, []string{"z"}, false, unordered, "headless"},
		{"Local", model.Import{ServiceProperties: model.ServiceProperties{InternalTrafficPolicy: &local}}, []string{"z"}, false, unordered, "internalTrafficPolicy is Local"},
	} {
		v := ImportView{Self: "a", LocalCluster: model.LocalCluster{Zones: c.zones}, ClusterLabels: map[string]string{"region": "eu"}}
		means, limit := v.means(tiersFrom(t, "region=@SameAsImporter@; continent=@SameAsImporter@; *"), &c.desired, c.maintained)
		if means != c.means || !strings.Contains(limit, c.limit) {
			t.Errorf("%s: got %d, %q", c.name, means, limit)
		}
	}
	v := ImportView{Self: "a", LocalCluster: model.LocalCluster{Zones: []string{"z"}}}
	if _, limit := v.means(tiersFrom(t, "self; *"), &model.Import{}, false); limit != "" {
		t.Errorf("tiers that apply as they say are limited: %s", fmt.Sprint(limit))
	}
}
