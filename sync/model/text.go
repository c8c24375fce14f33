// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import "unicode/utf8"

// Bound shortens text to at most that many bytes, at the end of a rune.
func Bound(text string, bytes int) string {
	const ellipsis = "…"
	if len(text) <= bytes {
		return text
	}
	end := bytes - len(ellipsis)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}
