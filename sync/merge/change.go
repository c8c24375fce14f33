// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// Change is one property in which two imports differ.
type Change struct {
	// Field is its name, Of what of it differs, Before and After are the values.
	Field, Of, Before, After string
}

// String is "type: ClusterSetIP to Headless", or `port "http": 80/TCP to absent`.
func (c Change) String() string {
	return fmt.Sprintf("%s: %s to %s", cmp.Or(c.Of, c.Field), c.Before, c.After)
}

// Changes are the properties of before that are not the same in after, in a fixed
// order. Further ports of after are no change, and neither is another order of ports
// or IP families. The exports are ordered as for ResolveInOrder.
func Changes(before, after []model.Export) []Change {
	if len(before) == 0 || len(after) == 0 {
		return nil
	}
	return Compare(resolve(before), resolve(after))
}

// Compare is Changes of imports that are resolved.
func Compare(b, a *model.Import) []Change {
	var found []Change
	compare := func(field, was, is string) {
		if was != is {
			found = append(found, Change{Field: field, Before: was, After: is})
		}
	}
	compare("type", string(b.Type), string(a.Type))
	for _, p := range slices.SortedFunc(slices.Values(b.Ports), func(x, y mcsv1beta1.ServicePort) int { return cmp.Compare(x.Name, y.Name) }) {
		if was, is := showPort(b.Ports, p.Name), showPort(a.Ports, p.Name); was != is {
			found = append(found, Change{Field: "ports", Of: portTitle(p.Name), Before: was, After: is})
		}
	}
	compare("ipFamilies", showFamilies(b.IPFamilies), showFamilies(a.IPFamilies))
	if b.Type != mcsv1beta1.Headless && a.Type != mcsv1beta1.Headless {
		compare("sessionAffinity", string(b.SessionAffinity), string(a.SessionAffinity))
		compare("session affinity timeout", showAffinityTimeout(b), showAffinityTimeout(a))
		compare("internalTrafficPolicy", showPointer(b.InternalTrafficPolicy), showPointer(a.InternalTrafficPolicy))
		compare("trafficDistribution", showDistribution(model.Export{TrafficDistribution: b.TrafficDistribution}),
			showDistribution(model.Export{TrafficDistribution: a.TrafficDistribution}))
	}
	compare("preference for local endpoints", fmt.Sprint(b.PreferLocal), fmt.Sprint(a.PreferLocal))
	compare("exported labels", showMap(b.Labels), showMap(a.Labels))
	compare("exported annotations", showMap(b.Annotations), showMap(a.Annotations))
	compare("selector", showMap(b.Selector), showMap(a.Selector))
	compare("target ports", showTargets(b.Targets), showTargets(a.Targets))
	return found
}

func showAffinityTimeout(i *model.Import) string {
	if i.SessionAffinity != corev1.ServiceAffinityClientIP || timeout(i.SessionAffinityConfig) == nil {
		return "none"
	}
	return fmt.Sprintf("%d s", *timeout(i.SessionAffinityConfig))
}

func showPointer[T ~string](value *T) string {
	if value == nil {
		return "unset"
	}
	return string(*value)
}

// showMap quotes keys and values, so that different maps never have the same text.
func showMap(m map[string]string) string {
	if len(m) == 0 {
		return "none"
	}
	text := ""
	for i, key := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf("%q=%q", key, m[key])
	}
	return text
}

func showTargets(targets []model.Target) string {
	if len(targets) == 0 {
		return "none"
	}
	text, _ := json.Marshal(targets) // numbers and names, which JSON can express
	return string(text)
}
