// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
)

// disagreement says which clusters have which value of a property, those of older exports first,
// and which is used why:
//
//	port "http": 80/TCP in a, b (used: a has the oldest export); 8080/TCP in c.
//
// It is empty if all agree. Imports without a text are left out: the property means nothing
// there. Without a note, the first value is used.
func disagreement(title string, imports []*model.Import, text show, used, note string) string {
	imports = model.Without(imports, func(i *model.Import) bool { return text(i) == "" })
	var values []string
	clusters := map[string][]model.ClusterID{}
	for _, i := range imports {
		t := text(i)
		if clusters[t] == nil {
			values = append(values, t)
		}
		clusters[t] = append(clusters[t], i.Constituents[0].Cluster)
	}
	if len(values) < 2 {
		return ""
	}
	if note == "" {
		used, note = values[0], usedNote(imports)
	}
	var parts []string
	for i, t := range values {
		if i == maxValues {
			parts = append(parts, fmt.Sprintf("further values: %d", len(values)-i))
			break
		}
		part := model.Bound(t, maxValueBytes) + " in " + decision.Some(clusters[t], maxClusters)
		if t == used {
			part += " (" + note + ")"
		}
		parts = append(parts, part)
	}
	return title + ": " + strings.Join(parts, "; ") + "."
}

// property is one whose value is that of the oldest export.
type property struct {
	// reason is that of the conflict; empty if KEP-1645 defines none.
	reason mcsv1beta1.ServiceExportConditionReason
	title  string
	text   show
}

// show is the text of a property of an import; empty where it means nothing there.
type show func(*model.Import) string

// properties are those whose value is that of the oldest export, in the order of the
// reasons in KEP-1645. Of labels and annotations they show in what the imports differ.
//
// kube-proxy does not serve headless Services, so properties that configure it do not
// conflict there, and resolve leaves them empty: if only the types differ, the conflict is
// TypeConflict. If only some exports have an affinity, it is SessionAffinityConflict.
func properties(imports ...*model.Import) []property {
	return []property{
		{mcsv1beta1.ServiceExportReasonTypeConflict, "type", func(i *model.Import) string { return string(i.Type) }},
		{mcsv1beta1.ServiceExportReasonSessionAffinityConflict, "sessionAffinity", func(i *model.Import) string { return string(i.SessionAffinity) }},
		{mcsv1beta1.ServiceExportReasonSessionAffinityConfigConflict, "session affinity timeout", showTimeout},
		{mcsv1beta1.ServiceExportReasonLabelsConflict, "exported labels",
			showDifference(imports, func(i *model.Import) map[string]string { return i.Labels })},
		{mcsv1beta1.ServiceExportReasonAnnotationsConflict, "exported annotations",
			showDifference(imports, func(i *model.Import) map[string]string { return i.Annotations })},
		{mcsv1beta1.ServiceExportReasonInternalTrafficPolicyConflict, "internalTrafficPolicy", func(i *model.Import) string { return string(ptr.Deref(i.InternalTrafficPolicy, "")) }},
		{mcsv1beta1.ServiceExportReasonTrafficDistributionConflict, "trafficDistribution", showDistribution},
		{model.ReasonTiersConflict, "tiers", func(i *model.Import) string { return cmp.Or(i.Tiers, "unset") }},
		{"", "ipFamilies", func(i *model.Import) string { return cmp.Or(showFamilies(i), "unset") }},
		{"", "selector", showDifference(imports, func(i *model.Import) map[string]string { return i.Selector })},
		{"", "target ports", showTargets},
	}
}

// conflicts returns the conflicts among the exports, in the order of KEP-1645.
func conflicts(ordered []model.Export, resolved *model.Import) []model.Conflict {
	alone := make([]*model.Import, len(ordered)) // what each would be without the others
	for i := range ordered {
		alone[i] = Resolve(ordered[i : i+1])
	}
	var found []model.Conflict
	add := func(reason mcsv1beta1.ServiceExportConditionReason, message string) {
		if message != "" {
			found = append(found, model.Conflict{Reason: reason, Message: message})
		}
	}
	add(mcsv1beta1.ServiceExportReasonPortConflict, portsDisagree(alone, resolved))
	for _, p := range properties(alone...) {
		if p.reason != "" && p.text(resolved) != "" {
			add(p.reason, disagreement(p.title, alone, p.text, "", ""))
		}
	}
	// A constituent that lacks one of the import's IP families gets no traffic of that family.
	// One with more families than the import is no conflict. One with unknown families is ignored.
	misses := func(i *model.Import) bool {
		return len(i.IPFamilies) > 0 && !sets.New(i.IPFamilies...).HasAll(resolved.IPFamilies...)
	}
	if slices.ContainsFunc(alone, misses) {
		add(mcsv1beta1.ServiceExportReasonIPFamilyConflict, disagreement("IP families", alone, showFamilies, "", ""))
	}
	size := separatorSize * (len(found) - 1)
	for _, c := range found {
		size += len(c.Message)
	}
	for i := range found { // each message gets the same share if they are too long together
		if size > MaxMessages {
			found[i].Message = model.Bound(found[i].Message, MaxMessages/len(found)-separatorSize)
		}
	}
	return found
}

// usedNote says why the value of the first export is used. An older one is behind it
// only where a takeover is held.
func usedNote(alone []*model.Import) string {
	first := alone[0].Constituents[0]
	if slices.ContainsFunc(alone, func(i *model.Import) bool { return i.Constituents[0].CreatedAt.Unix() < first.CreatedAt.Unix() }) {
		return fmt.Sprintf("used: %s decides unless a takeover is confirmed", first.Cluster)
	}
	return fmt.Sprintf("used: %s has the oldest export", first.Cluster)
}

// showFamilies sorts the families: another order is no conflict, because it only
// decides which address is the first.
func showFamilies(i *model.Import) string {
	return model.Join(slices.Sorted(slices.Values(i.IPFamilies)), "+")
}

// showTimeout is empty without an affinity.
func showTimeout(i *model.Import) string {
	if i.SessionAffinity != corev1.ServiceAffinityClientIP || timeout(i.SessionAffinityConfig) == nil {
		return ""
	}
	return fmt.Sprintf("%d s", *timeout(i.SessionAffinityConfig))
}

// showDistribution treats PreferClose as PreferSameZone: in Kubernetes one is an
// alias of the other.
func showDistribution(i *model.Import) string {
	switch text := ptr.Deref(i.TrafficDistribution, "unset"); {
	case i.Type == mcsv1beta1.Headless:
		return ""
	case text == corev1.ServiceTrafficDistributionPreferClose:
		return corev1.ServiceTrafficDistributionPreferSameZone
	default:
		return text
	}
}

func showTargets(i *model.Import) string {
	if len(i.Targets) == 0 {
		return "none"
	}
	text, _ := json.Marshal(i.Targets) // numbers and names, which JSON can express
	return string(text)
}

// showDifference returns a function that shows only those keys of an import's map
// in which the imports differ. Values are quoted, so that different maps never
// have the same text.
func showDifference(imports []*model.Import, of func(*model.Import) map[string]string) show {
	differs := map[string]bool{}
	for _, i := range imports {
		for key, value := range of(i) {
			differs[key] = slices.ContainsFunc(imports, func(other *model.Import) bool {
				found, has := of(other)[key]
				return !has || found != value
			})
		}
	}
	return func(i *model.Import) string {
		keys := slices.DeleteFunc(slices.Sorted(maps.Keys(of(i))), func(key string) bool { return !differs[key] })
		pairs := model.Map(keys, func(key string) string { return fmt.Sprintf("%s=%q", key, of(i)[key]) })
		return cmp.Or(strings.Join(pairs, ","), "none")
	}
}

// Change is one property in which two imports differ.
type Change struct {
	// Field is its name, Of what of it differs, Before and After are the values.
	Field, Of, Before, After string
}

// String is "type: ClusterSetIP to Headless", or `port "http": 80/TCP to absent`.
func (c Change) String() string {
	return fmt.Sprintf("%s: %s to %s", cmp.Or(c.Of, c.Field), c.Before, c.After)
}

// Changes are the properties of b that are not the same in a, in a fixed order. Further
// ports of a are no change, and neither is another order of ports or IP families.
func Changes(b, a *model.Import) []Change {
	var found []Change
	for _, p := range slices.SortedFunc(slices.Values(b.Ports), func(x, y mcsv1beta1.ServicePort) int { return cmp.Compare(x.Name, y.Name) }) {
		if was, is := showPort(b.Ports, p.Name), showPort(a.Ports, p.Name); was != is {
			found = append(found, Change{Field: "ports", Of: portTitle(p.Name), Before: was, After: is})
		}
	}
	for _, p := range properties(b, a) {
		if was, is := p.text(b), p.text(a); was != is && was != "" && is != "" {
			found = append(found, Change{Field: p.title, Before: was, After: is})
		}
	}
	return found
}

// MaxMessages is the limit, in bytes, on all messages of one ResolveInOrder together,
// joined with separators of up to separatorSize bytes.
const MaxMessages = 1024

const separatorSize = 3

// How much of what the exports disagree about a message shows.
const (
	maxDisagreements = 3
	maxValues        = 3
	maxClusters      = 5
	maxValueBytes    = 80
)
