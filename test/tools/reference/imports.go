// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// importsName is the page that has the tables by which exports and imports are decided.
const importsName = "imports.md"

// placeholder is where a table of the code is, in a page that is otherwise written by
// hand: its name, and the table that was generated last.
var placeholder = regexp.MustCompile(`(?s)<!-- Generated table: ([a-z]+)\. .*?<!-- End of table -->`)

const placeholderText = "<!-- Generated table: %s. `make generate` writes it from the code. -->\n%s<!-- End of table -->"

// tables are those of docs/imports.md, by name: the comments of sync/decide in repository that
// begin with a header.
func tables(repository string) (map[string]string, error) {
	out := map[string]string{}
	for _, name := range []string{"import", "export"} {
		content, err := os.ReadFile(filepath.Join(repository, "sync", "decide", name+"table.go"))
		if err != nil {
			return nil, err
		}
		out[name] = numbered(string(content))
	}
	return out, nil
}

// importsPage is docs/imports.md as it is in folder, with these tables.
func importsPage(folder string, tables map[string]string) (string, error) {
	content, err := os.ReadFile(filepath.Join(folder, importsName))
	if err != nil {
		return "", err
	}
	missing := maps.Clone(tables)
	page := placeholder.ReplaceAllStringFunc(string(content), func(old string) string {
		name := placeholder.FindStringSubmatch(old)[1]
		table, known := missing[name]
		if !known {
			err = fmt.Errorf("%s has a place for table %q, which does not exist, or has two", importsName, name)
		}
		delete(missing, name)
		return fmt.Sprintf(placeholderText, name, table)
	})
	for name := range missing {
		if err == nil {
			err = fmt.Errorf("%s has no place for table %q", importsName, name)
		}
	}
	return page, err
}

// numbered is the Markdown table in the comments of a file, with the numbers of its rows.
func numbered(source string) string {
	var out strings.Builder
	row := 0
	for line := range strings.Lines(source) {
		cells, is := strings.CutPrefix(line, "//\t| ")
		state, rest, _ := strings.Cut(cells, " | ")
		switch {
		case !is:
			continue
		case row == 0:
			columns := strings.Count(cells, "|")
			fmt.Fprintf(&out, "| row | %s|%s\n", cells, strings.Repeat("---|", columns+1))
		default:
			fmt.Fprintf(&out, "| %d | `%s` | %s", row, state, rest)
		}
		row++
	}
	return out.String()
}
