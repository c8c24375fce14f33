// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
)

// checkMap bounds exported labels or annotations and checks keys and, where a
// checker is given, values. Keys are visited in order, so that the message is
// the same on every run.
func checkMap(field string, m map[string]string, checkValue func(string) []string) *problem {
	if len(m) > maxMapEntries {
		return problemf(field, "holds %d entries; expected at most %d", len(m), maxMapEntries)
	}
	size := 0
	for _, key := range slices.Sorted(maps.Keys(m)) {
		value := m[key]
		size += len(key) + len(value)
		// The API server lower-cases annotation keys before it checks them, and
		// label keys of a ServiceExport are user's text, so case is let pass here.
		if errs := validation.IsQualifiedName(strings.ToLower(key)); len(errs) > 0 {
			return problemf(field, "key %s is no qualified name; expected one such as \"example.com/team\"", quoteShort(key))
		}
		if !utf8.ValidString(value) {
			return problemf(field, "the value of %q is not UTF-8", key)
		}
		if checkValue != nil && len(checkValue(value)) > 0 {
			return problemf(field, "the value %s of %q is no label value; expected at most 63 letters, digits, '-', '_' or '.'", quoteShort(value), key)
		}
	}
	if size > maxMapBytes {
		return problemf(field, "holds %d bytes; expected at most %d", size, maxMapBytes)
	}
	return nil
}

// quoteShort makes a peer's string fit for a message: quoted, so that no control
// character reaches a terminal, and short, so that it fits into a condition.
func quoteShort(s string) string {
	const limit = 64
	if len(s) > limit {
		return strconv.Quote(strings.ToValidUTF8(s[:limit], "?")) + "…"
	}
	return strconv.Quote(s)
}
