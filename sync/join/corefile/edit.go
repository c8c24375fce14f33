// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package corefile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coredns/corefile-migration/migration/corefile"
)

// edit replaces text[start:end].
type edit struct {
	start, end int
	with       string
}

// apply makes all edits at once; those at one offset in their order. Edits that
// overlap are from a layout in which no single word can be removed.
func apply(text string, edits []edit) (string, error) {
	slices.SortStableFunc(edits, func(a, b edit) int { return a.start - b.start })
	var out strings.Builder
	at := 0
	for _, e := range edits {
		if e.start < at {
			return "", errUncertain
		}
		out.WriteString(text[at:e.start] + e.with)
		at = e.end
	}
	return out.String() + text[at:], nil
}

// enable adds the zone to the plugin, and to the lines that keep the cluster's
// domain out of the cache, for the same reason: an answer would be out of date.
func (p place) enable(text string) ([]edit, error) {
	var edits []edit
	if p.zone() == nil {
		edits = append(edits, insert(p.domain.end, " "+Zone))
	}
	for _, line := range p.uncached() {
		if zoneAmong(line.args()) == nil {
			edits = append(edits, insert(line.words[len(line.words)-1].end, " "+Zone))
		}
	}
	if p.option() != nil {
		return edits, nil
	}
	option, err := p.addOption(text)
	return append(edits, option), err
}

func insert(at int, what string) edit { return edit{start: at, end: at, with: what} }

// addOption names the zone in the option multicluster.
func (p place) addOption(text string) (edit, error) {
	for _, option := range p.plugin.inner {
		if option.name() != optionName {
			continue
		}
		if len(option.args()) == 0 {
			return edit{}, fmt.Errorf("line %d: option %s names no zone; expected at least one; remove the line", option.words[0].line, optionName)
		}
		return insert(option.words[len(option.words)-1].end, " "+Zone), nil
	}
	if p.plugin.opening == nil {
		words := p.plugin.words
		return insert(words[len(words)-1].end, p.newBlock(text)), nil
	}
	opening := p.plugin.opening
	newline := strings.IndexByte(text[opening.end:], '\n')
	alone := p.plugin.closing != nil && p.plugin.closing.line > opening.line &&
		(len(p.plugin.inner) == 0 || p.plugin.inner[0].words[0].line > opening.line)
	if newline < 0 || !alone {
		return edit{}, fmt.Errorf("line %d: the block of plugin %s is on one line; expected one option on each line", opening.line, pluginName)
	}
	return insert(opening.end+newline+1, p.indent(text)+optionName+" "+Zone+lineEnd(text)), nil
}

// newBlock is what follows the plugin's line if it had no block.
func (p place) newBlock(text string) string {
	outer, end := indentAt(text, p.plugin.words[0].start), lineEnd(text)
	return " {" + end + outer + "    " + optionName + " " + Zone + " " + blockNote + end + outer + "}"
}

// indent is that of the plugin's options.
func (p place) indent(text string) string {
	if len(p.plugin.inner) > 0 {
		return indentAt(text, p.plugin.inner[0].words[0].start)
	}
	return indentAt(text, p.plugin.words[0].start) + "    "
}

// indentAt is the white space with which the line of an offset begins.
func indentAt(text string, at int) string {
	line := text[strings.LastIndexByte(text[:at], '\n')+1 : at]
	return line[:len(line)-len(strings.TrimLeft(line, " \t"))]
}

func lineEnd(text string) string {
	if strings.Contains(text, "\r\n") {
		return "\r\n"
	}
	return "\n"
}

// uncached are the lines of plugin cache that exclude the cluster's domain. Each
// kind of answer has one such line: a second one would replace the first.
func (p place) uncached() []*statement {
	var lines []*statement
	for _, plugin := range p.server.inner {
		if plugin.name() != "cache" {
			continue
		}
		for _, option := range plugin.inner {
			excludes := option.name() == "disable" && slices.ContainsFunc(option.args(), func(word token) bool {
				return zoneOf(word.text) == zoneOf(p.domain.text)
			})
			if excludes {
				lines = append(lines, option)
			}
		}
	}
	return lines
}

// disable takes back what enable adds. It leaves a plugin alone that serves no
// other domain.
func (p place) disable(text string) []edit {
	p, err := p.withDomain()
	if err != nil {
		return nil
	}
	var edits []edit
	for _, line := range append(p.uncached(), p.plugin) {
		edits = append(edits, removeZone(text, line.args())...)
	}
	words := p.plugin.words
	last := words[len(words)-1].end
	if block := p.newBlock(text); p.plugin.closing != nil && text[last:p.plugin.closing.end] == block {
		return append(edits, edit{start: last, end: last + len(block)})
	}
	for _, option := range p.plugin.inner {
		if option.name() != optionName || zoneAmong(option.args()) == nil {
			continue
		}
		if !slices.ContainsFunc(option.args(), func(word token) bool { return zoneOf(word.text) != Zone+"." }) {
			edits = append(edits, removeLine(text, option))
			continue
		}
		edits = append(edits, removeZone(text, option.args())...)
	}
	return edits
}

// removeZone removes the zone from words, with the one space before it.
func removeZone(text string, words []token) []edit {
	var edits []edit
	for _, word := range words {
		if zoneOf(word.text) != Zone+"." {
			continue
		}
		start := word.start
		if before := text[start-1]; before == ' ' || before == '\t' {
			start--
		}
		edits = append(edits, edit{start: start, end: word.end})
	}
	return edits
}

func removeLine(text string, option *statement) edit {
	start, end := strings.LastIndexByte(text[:option.words[0].start], '\n')+1, option.words[len(option.words)-1].end
	if newline := strings.IndexByte(text[end:], '\n'); newline >= 0 {
		return edit{start: start, end: end + newline + 1}
	}
	return edit{start: start, end: len(text)}
}

// check reads the changed text with the library of kubeadm: the zone is there,
// or not, and nothing else is different.
func check(before, after string, enabled bool) (string, error) {
	was, errWas := corefile.New(before)
	is, errIs := corefile.New(after)
	servers, errRead := read(after)
	if err := errors.Join(errWas, errIs, errRead); err != nil {
		return "", err
	}
	if served(servers) != enabled || without(was) != without(is) {
		return "", fmt.Errorf("the changed Corefile would not be what is expected; change it by hand: %s", byHand)
	}
	return after, nil
}

// without is what a Corefile says apart from the zone.
func without(c *corefile.Corefile) string {
	isZone := func(word string) bool { return zoneOf(word) == Zone+"." }
	for _, server := range c.Servers {
		for _, plugin := range server.Plugins {
			if plugin.Name == pluginName {
				plugin.Args = slices.DeleteFunc(plugin.Args, isZone)
			}
			for _, option := range plugin.Options {
				if option.Name == optionName || option.Name == "disable" {
					option.Args = slices.DeleteFunc(option.Args, isZone)
				}
			}
			plugin.Options = slices.DeleteFunc(plugin.Options, func(o *corefile.Option) bool {
				return o.Name == optionName && len(o.Args) == 0
			})
		}
	}
	return fmt.Sprint(c.ToString())
}
