// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

func sorted(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }

func sortedKeys(set map[types.NamespacedName]bool) []types.NamespacedName {
	return slices.SortedFunc(maps.Keys(set), func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// recordKey is the inverse of model.RecordName.
func recordKey(record string) (types.NamespacedName, bool) {
	name, namespace, ok := strings.Cut(record, ".")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok && name != "" && namespace != ""
}
