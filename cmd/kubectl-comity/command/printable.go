// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
)

// printable writes text of others, such as the answers of policies, to a terminal: what could move
// the cursor, or hide or reorder other characters, is escaped as Rego and JSON escape it, and a
// line is cut where no one reads on.
type printable struct {
	to io.Writer
	// cut is after how many bytes a line ends; 0 for never.
	cut int
}

// maxLine is as long as a denial that the webhook sends.
const maxLine = 4096

// Whole is Env.Out for a program, which reads every line to its end.
func Whole(out io.Writer) io.Writer {
	if p, is := out.(printable); is {
		return printable{p.to, 0}
	}
	return out
}

// Hidden reports whether a character is one that printable escapes.
func Hidden(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }

// Write implements io.Writer. A write ends with a whole character, as those of fmt do.
func (p printable) Write(text []byte) (int, error) {
	var out bytes.Buffer
	for line := range bytes.SplitAfterSeq(text, []byte("\n")) {
		if p.cut > 0 && len(line) > p.cut {
			line = append(bytes.ToValidUTF8(line[:p.cut:p.cut], nil), "…\n"...)
		}
		for _, r := range string(line) {
			if !Hidden(r) {
				out.WriteRune(r)
				continue
			}
			for _, unit := range utf16.AppendRune(nil, r) {
				fmt.Fprintf(&out, `\u%04x`, unit)
			}
		}
	}
	_, err := p.to.Write(out.Bytes())
	return len(text), err
}
