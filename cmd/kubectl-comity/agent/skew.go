// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/version"
)

// Skew says which versions run if some differ from each other, or from plugin, by more than
// one minor version; empty if none does. A version that is no release, such as that of a
// local build, differs from every other text. An agent whose version is not known, or that
// is not installed any more, is left out.
func Skew(plugin string, sites []*Site) string {
	versions, running, skewed := []string{plugin}, "this plugin is "+plugin, false
	for _, s := range sites {
		own := s.Agent.Version
		if own == "" || errors.Is(s.Err, ErrNotInstalled) {
			continue
		}
		skewed = skewed || slices.ContainsFunc(versions, func(other string) bool { return !compatible(own, other) })
		versions = append(versions, own)
		running += fmt.Sprintf(", cluster %s runs Comity %s", s.Agent.ID, own)
	}
	if !skewed {
		return ""
	}
	return running + "; expected at most one minor version of difference; upgrade the older ones"
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
