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

// disagreement is one property that has several values.
type disagreement struct {
	title  string
	values []value // those of older exports first
	// used is the text of the value in use, note is why it is.
	used, note string
}

// value is one value of a property and the clusters that have it, oldest first.
type value struct {
	text     string
	clusters []model.ClusterID
}

// compare groups the exports by the text of one property. The text must hold
// everything that makes a difference.
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

// property is one that the oldest export decides.
type property struct {
	reason mcsv1beta1.ServiceExportConditionReason
	title  string
	// has says whether the property means anything for this export.
	has  func(e model.Export, resolved *model.Import) bool
	text func(model.Export) string
}

// properties lists, in the order of the reasons in KEP-1645, those of which the
// oldest export's value is used as it is.
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

// isServed: a headless Service is not served by a proxy, so it neither has nor
// contradicts what tells a proxy how to serve it. That the types differ is told
// by TypeConflict.
func isServed(e model.Export, resolved *model.Import) bool {
	return resolved.Type != mcsv1beta1.Headless && e.Type != mcsv1beta1.Headless
}

// hasAffinity: a timeout means nothing without the affinity. That only some
// exports have one is told by SessionAffinityConflict.
func hasAffinity(e model.Export, resolved *model.Import) bool {
	return isServed(e, resolved) && resolved.SessionAffinity == e.SessionAffinity &&
		e.SessionAffinity != corev1.ServiceAffinityNone
}

// conflicts tells what the exports disagree about, in KEP-1645's order.
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
		d.used, d.note = d.values[0].text, oldestNote(concerned[0])
		found = append(found, finding{p.reason, []disagreement{d}})
	}
	if d, is := familiesDisagree(ordered, resolved); is {
		found = append(found, finding{mcsv1beta1.ServiceExportReasonIPFamilyConflict, []disagreement{d}})
	}
	return render(found)
}

// familiesDisagree reports whether traffic of one of the import's IP families
// could not reach every constituent. A constituent that has more families than
// the import is no conflict: no traffic of those reaches anyone. One that does
// not tell its families is not counted.
func familiesDisagree(ordered []model.Export, resolved *model.Import) (disagreement, bool) {
	telling := slices.DeleteFunc(slices.Clone(ordered), func(e model.Export) bool { return len(e.IPFamilies) == 0 })
	misses := func(e model.Export) bool {
		return slices.ContainsFunc(resolved.IPFamilies, func(f corev1.IPFamily) bool { return !slices.Contains(e.IPFamilies, f) })
	}
	if !slices.ContainsFunc(telling, misses) {
		return disagreement{}, false
	}
	d := compare("IP families", telling, func(e model.Export) string { return showFamilies(e.IPFamilies) })
	d.used, d.note = d.values[0].text, oldestNote(telling[0])
	return d, true
}

func oldestNote(e model.Export) string {
	return fmt.Sprintf("used: %s has the oldest export", e.Cluster)
}

// showFamilies ignores the order: it decides which address is first, and no
// traffic is lost by it.
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

// showDistribution treats PreferClose as what Kubernetes made it: another word
// for PreferSameZone.
func showDistribution(e model.Export) string {
	switch {
	case e.TrafficDistribution == nil:
		return "unset"
	case *e.TrafficDistribution == "PreferClose":
		return corev1.ServiceTrafficDistributionPreferSameZone
	}
	return *e.TrafficDistribution
}

// showDifference shows of a map only the keys in which the exports differ, so
// that the little that differs is not lost among what does not. Values are
// quoted: two maps that differ never look the same.
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
