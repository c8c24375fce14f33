// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"cmp"
	"fmt"
	"slices"

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
