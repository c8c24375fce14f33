// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"fmt"
	"strings"
)

// maxListed is how many clusters a message names before it only counts.
const maxListed = 10

// Clusters is "cluster b", "clusters b, c", or "clusters b, … and 90 more".
func Clusters[ID ~string](ids []ID) string {
	if len(ids) == 1 {
		return "cluster " + string(ids[0])
	}
	return "clusters " + Some(ids, maxListed)
}

// Some is "b, c, d", or "b, c, d and 93 more" if there are more than most.
func Some[Name ~string](names []Name, most int) string {
	var b strings.Builder
	for i, name := range names[:min(most, len(names))] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(name))
	}
	if more := len(names) - most; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}
