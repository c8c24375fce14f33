// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package corefile

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/coredns/corefile-migration/migration/corefile"
)

// token is a word of a Corefile and where it is.
type token struct {
	text string
	// start and end are offsets in the text, with quotes.
	start, end int
	// line and last are the lines, counted from 1, on which it begins and ends.
	line, last int
}

// statement is a word with the arguments behind it on the line: a server block,
// a plugin or an option, depending on how deep it is.
type statement struct {
	words []token
	// opening and closing are the braces of its block, if it has one.
	opening, closing *token
	inner            []*statement
}

func (s *statement) name() string  { return s.words[0].text }
func (s *statement) args() []token { return s.words[1:] }

// scan splits text into tokens as CoreDNS does. A # outside of quotes ends the
// word before it and hides what follows, up to white space if the word was not
// empty, else up to the end of the line: a peculiarity that files depend on.
func scan(text string) []token {
	var tokens []token
	line, at := 1, 0
	if strings.HasPrefix(text, "\uFEFF") {
		at = len("\uFEFF")
	}
	for at < len(text) {
		next, size := utf8.DecodeRuneInString(text[at:])
		switch {
		case next == '\n':
			line++
			at++
		case unicode.IsSpace(next):
			at += size
		case next == '#':
			if end := strings.IndexByte(text[at:], '\n'); end >= 0 {
				at += end
			} else {
				at = len(text)
			}
		default:
			word, after := scanWord(text, at, line)
			tokens = append(tokens, word)
			line, at = word.last, after
		}
	}
	return tokens
}

// scanWord reads the word at start, and returns where to continue.
func scanWord(text string, start, line int) (token, int) {
	if text[start] == '"' {
		return scanQuoted(text, start, line)
	}
	var value strings.Builder
	hidden, end := false, start
	for at, next := range text[start:] {
		if next == '\r' {
			continue
		}
		if unicode.IsSpace(next) {
			return token{value.String(), start, end, line, line}, start + at
		}
		if hidden = hidden || next == '#'; hidden {
			continue
		}
		value.WriteRune(next)
		end = start + at + utf8.RuneLen(next)
	}
	return token{value.String(), start, end, line, line}, len(text)
}

func scanQuoted(text string, start, line int) (token, int) {
	var value strings.Builder
	escaped, last := false, line
	for at, next := range text[start+1:] {
		if !escaped && next == '\\' {
			escaped = true
			continue
		}
		if !escaped && next == '"' {
			end := start + 1 + at + 1
			return token{value.String(), start, end, line, last}, end
		}
		if next == '\n' {
			last++
		}
		if escaped && next != '"' {
			value.WriteByte('\\')
		}
		value.WriteRune(next)
		escaped = false
	}
	return token{value.String(), start, len(text), line, last}, len(text)
}

// parse gives the server blocks, with their plugins, with their options. It gives
// nil if braces do not match, or open a block of nothing.
func parse(text string) []*statement {
	tokens := scan(text)
	root := &statement{}
	open := []*statement{root}
	for i := 0; i < len(tokens); {
		current := open[len(open)-1]
		switch tokens[i].text {
		case "{":
			if len(current.inner) == 0 {
				return nil
			}
			inner := current.inner[len(current.inner)-1]
			inner.opening = &tokens[i]
			open = append(open, inner)
			i++
		case "}":
			if len(open) == 1 {
				return nil
			}
			current.closing = &tokens[i]
			open = open[:len(open)-1]
			i++
		default:
			start := i
			for i++; i < len(tokens) && tokens[i].line == tokens[i-1].last && tokens[i].text != "{"; {
				i++
			}
			current.inner = append(current.inner, &statement{words: tokens[start:i]})
		}
	}
	if len(open) > 1 {
		return nil
	}
	return root.inner
}

// agrees is true if the library reads text as parse does. It is the library
// that kubeadm uses, so what the two read differently is left to a person.
func agrees(servers []*statement, text string) bool {
	library, err := corefile.New(text)
	if err != nil || len(library.Servers) != len(servers) {
		return false
	}
	for i, server := range library.Servers {
		own := servers[i]
		if !slices.Equal(server.DomPorts, texts(own.words)) || len(server.Plugins) != len(own.inner) {
			return false
		}
		for j, plugin := range server.Plugins {
			if !samePlugin(own.inner[j], plugin) {
				return false
			}
		}
	}
	return true
}

func samePlugin(own *statement, plugin *corefile.Plugin) bool {
	if own.name() != plugin.Name || !slices.Equal(texts(own.args()), plugin.Args) || len(own.inner) != len(plugin.Options) {
		return false
	}
	for i, option := range plugin.Options {
		if own.inner[i].name() != option.Name || !slices.Equal(texts(own.inner[i].args()), option.Args) {
			return false
		}
	}
	return true
}

func texts(tokens []token) []string {
	all := make([]string, len(tokens))
	for i, t := range tokens {
		all[i] = t.text
	}
	return all
}
