// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package guide runs the shell blocks of a Markdown document as a reader would,
// so that what the document says is what is tested.
//
// It takes the text, a table of substitutions for references to registries that
// a test does not reach, and an environment; it gives the output of each block
// with the time it took. It changes no word beside the table, runs blocks only in
// the order of the text, and bounds each one.
package guide

import (
	"fmt"
	"strings"
)

// Block is one fenced block that begins with ```sh.
type Block struct {
	// Section is the heading that it is under, without the marks.
	Section string
	// Line is where its text begins in the document, counted from 1.
	Line int
	// Text is what a shell gets.
	Text string
}

const fence = "```"

// Read gives all blocks to run, in order. Blocks in another language, such as
// console, are for readers alone. An unclosed block is an error.
func Read(document string) ([]Block, error) {
	var blocks []Block
	section, opened, running := "", 0, false
	for i, line := range strings.Split(document, "\n") {
		language, fenced := strings.CutPrefix(line, fence)
		switch {
		case fenced && opened == 0:
			opened, running = i+1, language == "sh"
			if running {
				blocks = append(blocks, Block{Section: section, Line: i + 2})
			}
		case fenced:
			opened, running = 0, false
		case running:
			blocks[len(blocks)-1].Text += line + "\n"
		case opened == 0 && strings.HasPrefix(line, "#"):
			section = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	if opened > 0 {
		return nil, fmt.Errorf("line %d opens a block that nothing closes", opened)
	}
	return blocks, nil
}

// Under gives the blocks of one section; its name without a number before it.
func Under(blocks []Block, section string) []Block {
	var found []Block
	for _, b := range blocks {
		if _, name, numbered := strings.Cut(b.Section, ". "); b.Section == section || numbered && name == section {
			found = append(found, b)
		}
	}
	return found
}

// Substitution replaces a reference that a reader's machine resolves and a test's does not.
type Substitution struct {
	// Published is the text in the document, Local what a test puts in its place.
	Published, Local string
	// Why is printed with it.
	Why string
}

// substitute applies the table to a text, in its order.
func substitute(text string, table []Substitution) string {
	for _, s := range table {
		text = strings.ReplaceAll(text, s.Published, s.Local)
	}
	return text
}

// Unused gives those substitutions whose text no block has: a document that
// changed would otherwise be run against the real registry without a word.
func Unused(blocks []Block, table []Substitution) []Substitution {
	var unused []Substitution
	for _, s := range table {
		used := false
		for _, b := range blocks {
			used = used || strings.Contains(b.Text, s.Published)
		}
		if !used {
			unused = append(unused, s)
		}
	}
	return unused
}
