// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/comity-mcs/comity/sync/decide"
)

// importsName is the page that has the tables by which exports and imports are decided.
const importsName = "imports.md"

// placeholder is where a table of the code is, in a page that is otherwise written by
// hand: its name, and the table that was generated last.
var placeholder = regexp.MustCompile(`(?s)<!-- Generated table: ([a-z]+)\. .*?<!-- End of table -->`)

const placeholderText = "<!-- Generated table: %s. `make generate` writes it from the code. -->\n%s<!-- End of table -->"

// tables are those of docs/imports.md, by name.
func tables() map[string]string {
	return map[string]string{
		"import": numbered([]string{"state", "the source", "its entry in the list", "its EndpointSlices"}, decide.ImportTable(),
			func(r decide.ImportRow) []string { return []string{code(r.State), r.When, r.Entry, r.Slices} }),
		"export": numbered([]string{"state", "the export", "its record", "copies of its EndpointSlices"}, decide.ExportTable(),
			func(r decide.ExportRow) []string { return []string{code(r.State), r.When, r.Record, r.Copies} }),
	}
}

// importsPage is docs/imports.md as it is in folder, with the tables as the code has them.
func importsPage(folder string) (string, error) {
	content, err := os.ReadFile(filepath.Join(folder, importsName))
	if err != nil {
		return "", err
	}
	missing := tables()
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

// numbered is a Markdown table of rows in their order, with their numbers.
func numbered[Row any](header []string, rows []Row, cells func(Row) []string) string {
	var out strings.Builder
	line := func(cells []string) {
		for _, cell := range cells {
			out.WriteString("| " + strings.ReplaceAll(cell, "|", "\\|") + " ")
		}
		out.WriteString("|\n")
	}
	line(append([]string{"row"}, header...))
	out.WriteString("|" + strings.Repeat("---|", len(header)+1) + "\n")
	for i, row := range rows {
		line(slices.Concat([]string{strconv.Itoa(i + 1)}, cells(row)))
	}
	return out.String()
}

// code is a word of the code as Markdown.
func code(word fmt.Stringer) string { return "`" + word.String() + "`" }
