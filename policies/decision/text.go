// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

// maxListed is how many clusters a message names before it only counts.
const maxListed = 10

// Shown is text of a policy as a terminal may show it. What moves the cursor, or hides or reorders
// other characters, is escaped as Rego and JSON escape it; what is after most bytes is cut, and
// nothing if most is 0.
func Shown(text string, most int) string {
	if most > 0 && len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	if !strings.ContainsFunc(text, Hidden) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if !Hidden(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// Hidden reports whether Shown escapes a character.
func Hidden(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }

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
