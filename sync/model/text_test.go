// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestOneLineAndQuoteAreSafeToShow(t *testing.T) {
	for in, want := range map[string]string{
		"line\r\nline\ttab":      "line  line tab",
		"nul\x00 esc\x1b[31m":    "nul� esc�[31m",
		"bidi \u202eevil\u2066":  "bidi �evil�",
		"half \xc3":              "half �",
		"  a\u2028b\u00a0c\n":    "a b c",
		"<b>Über</b>":            "<b>Über</b>",
		"":                       "",
		"zero\u200bwidth\ufeff.": "zero�width�.",
	} {
		if got := OneLine(in, 1024); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	for _, in := range []string{
		strings.Repeat("x", 5<<10), strings.Repeat("\xff\x00", 5<<10), strings.Repeat("ü", 1<<20), strings.Repeat("\u202e", 4<<10), strings.Repeat("\n\x1b", 31) + "xxü",
	} {
		for _, out := range []string{OneLine(in, 200), Quote(in)} {
			if len(out) > 400 || !utf8.ValidString(out) || strings.ContainsFunc(out, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%d bytes of %q", len(out), out)
			}
		}
		if out := OneLine(in, 200); len(out) > 200 {
			t.Errorf("%d bytes", len(out))
		}
	}
	for _, in := range []string{strings.Repeat("x", 200), strings.Repeat("é", 100), strings.Repeat("x", 199) + "é", strings.Repeat("日本", 100)} {
		for limit := range 210 {
			got := Bound(in, limit)
			if len(got) > max(limit, len("…")) || !utf8.ValidString(got) || (got == in) != (len(in) <= limit) || got != in && !strings.HasSuffix(got, "…") {
				t.Errorf("at most %d bytes of %q: %q", limit, in, got)
			}
		}
	}
	if got, want := Quote("a\"\x1b"), `"a\"\x1b"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
