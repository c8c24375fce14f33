// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import "fmt"

// maxNesting is how deep brackets may be nested. OPA's parser and compiler recurse
// for each level, and Go ends a process whose stack is full; people nest less than ten.
const maxNesting = 100

// tooDeep is the offset of the first bracket that is nested too deep; false if none is.
// It passes over strings and comments. It need not read Rego correctly: what it
// overlooks is stopped by the limits of a trial.
func tooDeep(text string) (offset int, found bool) {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '(', '[', '{':
			if depth++; depth > maxNesting {
				return i, true
			}
		case ')', ']', '}':
			depth = max(0, depth-1)
		case '"', '`':
			i = endOfString(text, i)
		case '#':
			for i < len(text) && text[i] != '\n' {
				i++
			}
		}
	}
	return 0, false
}

// endOfString is the offset of the quote that ends the string which begins at an
// offset; the end of the text, or of the line, if there is none.
func endOfString(text string, begin int) int {
	quote := text[begin]
	for i := begin + 1; i < len(text); i++ {
		switch {
		case text[i] == quote:
			return i
		case quote == '"' && text[i] == '\\':
			i++
		case quote == '"' && text[i] == '\n':
			return i
		}
	}
	return len(text)
}

func nestingProblem() string {
	return fmt.Sprintf("brackets are nested more than %d deep; expected fewer, give parts of it a rule of their own", maxNesting)
}
