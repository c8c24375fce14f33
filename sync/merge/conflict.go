// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// disagreement is one property with several values.
type disagreement struct {
	title  string
	values []value // those of older exports first
	// used is the text of the value in use, and note says why it is used.
	used, note string
}

// value is one value of a property and the clusters that have it, oldest first.
type value struct {
	text     string
	clusters []model.ClusterID
}

// compare groups the exports by the text of one property. Exports with the same
// text agree.
func compare(title string, exports []model.Export, text func(model.Export) string) disagreement {
	d := disagreement{title: title}
	index := map[string]int{}
	for _, e := range exports {
		t := text(e)
		i, known := index[t]
		if !known {
			i = len(d.values)
			index[t] = i
			d.values = append(d.values, value{text: t})
		}
		d.values[i].clusters = append(d.values[i].clusters, e.Cluster)
	}
	return d
}

// property is one whose value is that of the oldest export.
type property struct {
	reason mcsv1beta1.ServiceExportConditionReason
	title  string
	// has reports whether the property is meaningful for this export.
	has  func(e model.Export, resolved *model.Import) bool
	text func(model.Export) string
}

// properties are those whose value is that of the oldest export, in the order of
// the reasons in KEP-1645.
func properties(exports []model.Export) []property {
	labels := func(e model.Export) map[string]string { return e.Labels }
	annotations := func(e model.Export) map[string]string { return e.Annotations }
	return []property{
		{mcsv1beta1.ServiceExportReasonTypeConflict, "type", always, func(e model.Export) string { return string(e.Type) }},
		{mcsv1beta1.ServiceExportReasonSessionAffinityConflict, "sessionAffinity", isServed,
			func(e model.Export) string { return string(e.SessionAffinity) }},
		{mcsv1beta1.ServiceExportReasonSessionAffinityConfigConflict, "session affinity timeout", hasAffinity, showTimeout},
		{mcsv1beta1.ServiceExportReasonLabelsConflict, "exported labels", always, showDifference(exports, labels)},
		{mcsv1beta1.ServiceExportReasonAnnotationsConflict, "exported annotations", always,
			showDifference(exports, annotations)},
		{mcsv1beta1.ServiceExportReasonInternalTrafficPolicyConflict, "internalTrafficPolicy", isServed,
			func(e model.Export) string { return string(*e.InternalTrafficPolicy) }},
		{mcsv1beta1.ServiceExportReasonTrafficDistributionConflict, "trafficDistribution", isServed, showDistribution},
	}
}

func always(model.Export, *model.Import) bool { return true }

// isServed reports whether kube-proxy serves the export and the import. It does not
// serve headless Services, so properties that configure it do not conflict there.
// If only the types differ, the conflict is TypeConflict.
func isServed(e model.Export, resolved *model.Import) bool {
	return resolved.Type != mcsv1beta1.Headless && e.Type != mcsv1beta1.Headless
}

// hasAffinity reports whether the affinity timeout of an export is used. If only
// some exports have an affinity, the conflict is SessionAffinityConflict.
func hasAffinity(e model.Export, resolved *model.Import) bool {
	return isServed(e, resolved) && resolved.SessionAffinity == e.SessionAffinity &&
		e.SessionAffinity != corev1.ServiceAffinityNone
}

// conflicts returns the conflicts among the exports, in the order of KEP-1645.
func conflicts(ordered []model.Export, resolved *model.Import) []model.Conflict {
	var found []finding
	if ports := portsDisagree(ordered, resolved); len(ports) > 0 {
		found = append(found, finding{mcsv1beta1.ServiceExportReasonPortConflict, ports})
	}
	for _, p := range properties(ordered) {
		concerned := slices.DeleteFunc(slices.Clone(ordered), func(e model.Export) bool { return !p.has(e, resolved) })
		d := compare(p.title, concerned, p.text)
		if len(d.values) < 2 {
			continue
		}
		d.used, d.note = d.values[0].text, usedNote(concerned)
		found = append(found, finding{p.reason, []disagreement{d}})
	}
	if d, is := familiesDisagree(ordered, resolved); is {
		found = append(found, finding{mcsv1beta1.ServiceExportReasonIPFamilyConflict, []disagreement{d}})
	}
	return render(found)
}

// familiesDisagree reports whether a constituent lacks one of the import's IP
// families, so that it gets no traffic of that family. A constituent with more
// families than the import is no conflict. One with unknown families is ignored.
func familiesDisagree(ordered []model.Export, resolved *model.Import) (disagreement, bool) {
	known := slices.DeleteFunc(slices.Clone(ordered), func(e model.Export) bool { return len(e.IPFamilies) == 0 })
	misses := func(e model.Export) bool {
		return slices.ContainsFunc(resolved.IPFamilies, func(f corev1.IPFamily) bool { return !slices.Contains(e.IPFamilies, f) })
	}
	if !slices.ContainsFunc(known, misses) {
		return disagreement{}, false
	}
	d := compare("IP families", known, func(e model.Export) string { return showFamilies(e.IPFamilies) })
	d.used, d.note = d.values[0].text, usedNote(known)
	return d, true
}

// usedNote says why the value of the first export is used. An older one is behind it
// only where a takeover is held.
func usedNote(ordered []model.Export) string {
	first := ordered[0]
	if slices.ContainsFunc(ordered, func(e model.Export) bool { return e.CreatedAt.Unix() < first.CreatedAt.Unix() }) {
		return fmt.Sprintf("used: %s decides unless a takeover is confirmed", first.Cluster)
	}
	return fmt.Sprintf("used: %s has the oldest export", first.Cluster)
}

// showFamilies sorts the families: another order is no conflict, because it only
// decides which address is the first.
func showFamilies(families []corev1.IPFamily) string {
	sorted := slices.Compact(slices.Sorted(slices.Values(families)))
	names := make([]string, len(sorted))
	for i, family := range sorted {
		names[i] = string(family)
	}
	return strings.Join(names, "+")
}

func showTimeout(e model.Export) string {
	return fmt.Sprintf("%d s", *timeout(e.SessionAffinityConfig))
}

// showDistribution treats PreferClose as PreferSameZone: in Kubernetes one is an
// alias of the other.
func showDistribution(e model.Export) string {
	switch {
	case e.TrafficDistribution == nil:
		return "unset"
	case *e.TrafficDistribution == "PreferClose":
		return corev1.ServiceTrafficDistributionPreferSameZone
	}
	return *e.TrafficDistribution
}

// showDifference returns a function that shows only those keys of an export's map
// in which the exports differ. Values are quoted, so that different maps never
// have the same text.
func showDifference(exports []model.Export, of func(model.Export) map[string]string) func(model.Export) string {
	differs := map[string]bool{}
	for _, e := range exports {
		for key, value := range of(e) {
			differs[key] = slices.ContainsFunc(exports, func(other model.Export) bool {
				found, has := of(other)[key]
				return !has || found != value
			})
		}
	}
	return func(e model.Export) string {
		var pairs []string
		for _, key := range slices.Sorted(maps.Keys(of(e))) {
			if differs[key] {
				pairs = append(pairs, fmt.Sprintf("%s=%q", key, of(e)[key]))
			}
		}
		if len(pairs) == 0 {
			return "none"
		}
		return strings.Join(pairs, ",")
	}
}
