// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"fmt"
	"strings"
)

// contextLines are those around a change.
const contextLines = 3

// line is one of a diff: ' ' in both, '-' only before, '+' only after.
type line struct {
	mark byte
	text string
}

// unified is the difference of two texts as diff -u prints it, under name; empty
// if they are the same.
func unified(name, before, after string) string {
	if before == after {
		return ""
	}
	lines := compare(split(before), split(after))
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", name, name)
	for start := 0; start < len(lines); {
		first := start
		for first < len(lines) && lines[first].mark == ' ' {
			first++
		}
		if first == len(lines) {
			break
		}
		end := hunkEnd(lines, first)
		writeHunk(&out, lines, max(start, first-contextLines), end)
		start = end
	}
	return out.String()
}

// hunkEnd is where the lines around the changes from first on end.
func hunkEnd(lines []line, first int) int {
	last := first
	for i := first; i < len(lines) && i <= last+2*contextLines; i++ {
		if lines[i].mark != ' ' {
			last = i
		}
	}
	return min(len(lines), last+1+contextLines)
}

func writeHunk(out *strings.Builder, lines []line, from, to int) {
	before, after := 1, 1
	for _, l := range lines[:from] {
		before += count(l, '+')
		after += count(l, '-')
	}
	removed, added := 0, 0
	for _, l := range lines[from:to] {
		removed += count(l, '+')
		added += count(l, '-')
	}
	// Nothing before a new file.
	if removed == 0 {
		before--
	}
	if added == 0 {
		after--
	}
	fmt.Fprintf(out, "@@ -%d,%d +%d,%d @@\n", before, removed, after, added)
	for _, l := range lines[from:to] {
		fmt.Fprintf(out, "%c%s\n", l.mark, l.text)
	}
}

// count is 1 unless the line is only on the other side.
func count(l line, otherSide byte) int {
	if l.mark == otherSide {
		return 0
	}
	return 1
}

func split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// compare aligns two texts by their longest common lines. Corefiles have some
// ten lines, so the quadratic table is small.
func compare(before, after []string) []line {
	longest := make([][]int, len(before)+1)
	for i := range longest {
		longest[i] = make([]int, len(after)+1)
	}
	for i := len(before) - 1; i >= 0; i-- {
		for j := len(after) - 1; j >= 0; j-- {
			if before[i] == after[j] {
				longest[i][j] = longest[i+1][j+1] + 1
			} else {
				longest[i][j] = max(longest[i+1][j], longest[i][j+1])
			}
		}
	}
	var lines []line
	i, j := 0, 0
	for i < len(before) || j < len(after) {
		switch {
		case i < len(before) && j < len(after) && before[i] == after[j]:
			lines = append(lines, line{' ', before[i]})
			i, j = i+1, j+1
		case j == len(after) || i < len(before) && longest[i+1][j] >= longest[i][j+1]:
			lines = append(lines, line{'-', before[i]})
			i++
		default:
			lines = append(lines, line{'+', after[j]})
			j++
		}
	}
	return lines
}
