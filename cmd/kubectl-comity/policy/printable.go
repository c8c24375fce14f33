// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"fmt"
	"io"
	"unicode"
)

// printable writes text of others to a terminal: what could move the cursor, or hide or reorder
// other characters, is escaped as Rego and JSON escape it, and a line is cut where no one reads on.
type printable struct {
	to io.Writer
	// cut is after how many bytes a line ends; 0 for never, as in JSON.
	cut int
}

// maxLine is as long as a denial that the webhook sends.
const maxLine = 4096

// Write implements io.Writer. A write ends with a whole character, as those of fmt do.
func (p printable) Write(text []byte) (int, error) {
	var out bytes.Buffer
	for line := range bytes.SplitAfterSeq(text, []byte("\n")) {
		if p.cut > 0 && len(line) > p.cut {
			line = append(bytes.ToValidUTF8(line[:p.cut:p.cut], nil), "…\n"...)
		}
		for _, r := range string(line) {
			if r == '\n' || r == '\t' || unicode.IsPrint(r) {
				out.WriteRune(r)
			} else {
				fmt.Fprintf(&out, `\u%04x`, r)
			}
		}
	}
	_, err := p.to.Write(out.Bytes())
	return len(text), err
}
