// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

// made is what a page begins with that is generated, as a whole or almost: it lists what is in the code.
var made = regexp.MustCompile(`^(?:<!-- Generated|# Benchmarks\n\nMade by|# Conditions\n)`)

// handWritten are the pages of docs, and those for contributors, that people wrote: they are short.
func handWritten(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(pages(t), func(page string) bool {
		folder := path.Dir(page)
		return folder != "docs" && folder != ".github" || made.MatchString(read(t, page))
	})
}

const (
	maxWords    = 1500 // of one page, with its tables and blocks of code
	maxSentence = 30   // words
)

var (
	comment = regexp.MustCompile(`(?s)<!--.*?-->`)
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	// sentenceEnd is a mark behind which a space or the end of the text is.
	sentenceEnd = regexp.MustCompile("[.!?][)\"'`*_]*(?:\\s+|$)")
	item        = regexp.MustCompile(`^\s*(?:[*+-]|[0-9]+\.)\s+`)
	rule        = regexp.MustCompile(`^[|\s:-]+$`)
)

// words are those of a text: what has a letter or a digit.
func words(text string) []string {
	return slices.DeleteFunc(strings.Fields(text), func(s string) bool {
		return !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
	})
}

// readable is what a reader of a page sees, still with its lines and blocks of code.
func readable(markdown string) string {
	return linked.ReplaceAllString(anchor.ReplaceAllString(comment.ReplaceAllString(markdown, ""), ""), "$1")
}

// sentences are those of a page outside of blocks of code. A heading, an item of a list
// and a cell of a table each are at least one.
func sentences(markdown string) []string {
	var all []string
	paragraph := ""
	end := func() {
		for _, s := range sentenceEnd.Split(paragraph, -1) {
			if s = strings.Join(strings.Fields(s), " "); s != "" {
				all = append(all, s)
			}
		}
		paragraph = ""
	}
	for line := range strings.SplitSeq(block.ReplaceAllString(readable(markdown), ""), "\n") {
		switch {
		case strings.HasPrefix(line, "|"):
			end()
			if rule.MatchString(line) {
				continue
			}
			for cell := range strings.SplitSeq(strings.ReplaceAll(line, `\|`, ""), "|") {
				paragraph = cell
				end()
			}
		case strings.TrimSpace(line) == "":
			end()
		case strings.HasPrefix(line, "#"):
			end()
			paragraph = strings.TrimLeft(line, "# ")
			end()
		case item.MatchString(line):
			end()
			paragraph = item.ReplaceAllString(line, "")
		default:
			paragraph += " " + line
		}
	}
	end()
	return all
}

func TestPagesThatPeopleWroteAreShort(t *testing.T) {
	written := handWritten(t)
	if len(written) < 12 {
		t.Errorf("found only %d pages: %v", len(written), written)
	}
	for _, page := range written {
		text := read(t, page)
		if count := len(words(readable(text))); count > maxWords {
			t.Errorf("%s has %d words; expected at most %d", page, count, maxWords)
		}
		for _, s := range sentences(text) {
			if count := len(words(s)); count > maxSentence {
				t.Errorf("%s has a sentence of %d words; expected at most %d: %s", page, count, maxSentence, s)
			}
		}
	}
}

func TestSentencesAreFound(t *testing.T) {
	const page = "# A title\n\nOne [link text](there.md#anchor) and\n`spec.removed: true`. Two (in brackets.) Three?\n<!-- not\nread -->\n" +
		"* an item\n  of two lines\n1. another. And more\n\n| a | b \\| c |\n|---|:-:|\n| x. y | |\n\n```sh\nnot read. at all\n```\nThe end.\n"
	want := []string{
		"A title", "One link text and `spec.removed: true`", "Two (in brackets", "Three", "an item of two lines", "another", "And more",
		"a", "b c", "x", "y", "The end",
	}
	// The mark that ends a sentence is cut off, but "`." is not one behind which a backquote is.
	if diff := cmp.Diff(want, sentences(page)); diff != "" {
		t.Error(diff)
	}
	if count := len(words("| a-b | — | `c` d\n")); count != 3 {
		t.Errorf("%d words, expected 3", count)
	}
}
