// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"path"
	"slices"
)

// Namespaces are names of namespaces and patterns of names, in the order given; nil
// means all. See path.Match.
type Namespaces []string

// Contains reports whether the namespace called name is among them.
func (n Namespaces) Contains(name string) bool {
	return n == nil || slices.ContainsFunc(n, func(pattern string) bool {
		matched, err := path.Match(pattern, name)
		return err == nil && matched
	})
}
