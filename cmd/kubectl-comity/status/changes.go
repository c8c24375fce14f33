// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// facts are the states of a report, each under the name of what it is of.
func facts(r Report) map[string]string {
	all := map[string]string{}
	for _, c := range r.Clusters {
		all["cluster "+c.Context] = string(c.State)
		for _, p := range c.Peers {
			all["cluster "+c.name()+", peer "+p.ID] = string(p.State)
		}
	}
	for _, s := range r.Services {
		name := "cluster " + s.name() + ", " + s.Kind + " " + s.Namespace + "/" + s.Name
		all[name] = "there"
		for _, c := range s.Conditions {
			all[name+", "+c.Type] = string(c.Status) + " (" + c.Reason + ")"
		}
	}
	for _, p := range r.Problems {
		all["problem: "+problemLine(p)] = "there"
	}
	return all
}

// changes are the facts that are not as they were, in order.
func changes(before, after Report) []string {
	was, is := facts(before), facts(after)
	all := maps.Clone(was)
	maps.Copy(all, is)
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if was[name] != is[name] {
			lines = append(lines, fmt.Sprintf("%s: %s -> %s", name, cmp.Or(was[name], "absent"), cmp.Or(is[name], "absent")))
		}
	}
	return lines
}
