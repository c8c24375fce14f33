// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// Skew says which agents differ from plugin, or from each other, by more than
// one minor version; empty if none does. A version that is no release, such as
// that of a local build, differs from every other text. An agent without a version is left out.
func Skew(plugin string, agents []Agent) string {
	var different []string
	agents = slices.DeleteFunc(slices.Clone(agents), func(a Agent) bool { return a.Version == "" })
	for i, a := range agents {
		if !compatible(plugin, a.Version) {
			different = append(different, fmt.Sprintf("cluster %s runs Comity %s and this plugin is %s", a.ID, a.Version, plugin))
			continue
		}
		for _, b := range agents[:i] {
			if !compatible(a.Version, b.Version) {
				different = append(different, fmt.Sprintf("cluster %s runs Comity %s and cluster %s runs %s", b.ID, b.Version, a.ID, a.Version))
			}
		}
	}
	if len(different) == 0 {
		return ""
	}
	return strings.Join(different, "; ") + "; expected at most one minor version of difference; upgrade the older one"
}

func compatible(a, b string) bool {
	if a == b {
		return true
	}
	left, errLeft := version.ParseSemantic(a)
	right, errRight := version.ParseSemantic(b)
	return errLeft == nil && errRight == nil && left.Major() == right.Major() &&
		left.Minor() <= right.Minor()+1 && right.Minor() <= left.Minor()+1
}
