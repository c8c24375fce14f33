// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// MaxEventNote is the API server's limit on the note of an event, in bytes.
const MaxEventNote = 1024

// Bound shortens text to at most that many bytes, at the end of a rune. What is shortened
// ends with an ellipsis, which has three bytes.
func Bound(text string, bytes int) string {
	const ellipsis = "…"
	if len(text) <= bytes {
		return text
	}
	end := max(bytes-len(ellipsis), 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}

// OneLine makes text from elsewhere safe to show in a condition, an event or a
// terminal: one line of printable UTF-8 of at most that many bytes. It replaces
// characters that could move the cursor, or hide or reorder other characters.
func OneLine(text string, bytes int) string {
	if len(text) > 4*bytes { // no rune has more bytes
		text = text[:4*bytes]
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(text, string(unicode.ReplacementChar)))
	return Bound(strings.TrimSpace(text), bytes)
}

// Join joins items, such as ids of clusters or IP families.
func Join[T ~string](items []T, separator string) string {
	return strings.Join(Map(items, func(item T) string { return string(item) }), separator)
}

// Map is what of makes of each item of list, in its order; nil if there is none.
func Map[T, U any](list []T, of func(T) U) []U {
	if len(list) == 0 {
		return nil
	}
	out := make([]U, len(list))
	for i, item := range list {
		out[i] = of(item)
	}
	return out
}

// Without is list without the items that out reports. The list itself stays as it is.
func Without[T any](list []T, out func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), out)
}

// Find is the first item of list that is reported; false if none is.
func Find[T any](list []T, is func(T) bool) (item T, found bool) {
	if at := slices.IndexFunc(list, is); at >= 0 {
		return list[at], true
	}
	return item, false
}

// Sooner is the shorter wait; zero is none.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// Quote quotes a value from elsewhere for a message. It shows at most the first
// 64 bytes, and escapes what is not printable.
func Quote(value string) string {
	const limit = 64
	if len(value) > limit {
		return strconv.Quote(strings.ToValidUTF8(value[:limit], "?")) + "…"
	}
	return strconv.Quote(value)
}

// IsOlderVersion reports whether resourceVersion is comes before was in one store: a
// store that was at was and is at is was restored from a backup. It is false for versions
// that are no numbers: they cannot be compared.
func IsOlderVersion(is, was string) bool {
	order, err := resourceversion.CompareResourceVersion(is, was)
	return err == nil && order < 0
}
