// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Table prints rows in columns.
type Table struct{ out *tabwriter.Writer }

// NewTable begins a table with its headings. Flush ends it.
func NewTable(out io.Writer, headings ...any) Table {
	t := Table{tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)}
	t.Row(headings...)
	return t
}

// Row adds a row. An empty cell is shown as a dash.
func (t Table) Row(cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = cmp.Or(fmt.Sprint(cell), "-")
	}
	_, _ = fmt.Fprintln(t.out, strings.Join(texts, "\t"))
}

// Flush prints the rows. A reader that hung up is no error, as with all that is printed.
func (t Table) Flush() { _ = t.out.Flush() }
