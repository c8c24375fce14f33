// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"io"
	"strings"

	"github.com/comity-mcs/comity/policies/decision"
)

// printable writes text of others, such as the answers of policies, to a terminal, as
// decision.Shown. A line is cut where no one reads on.
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

// Write implements io.Writer. A write ends with a whole character, as those of fmt do.
func (p printable) Write(text []byte) (int, error) {
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		lines[i] = decision.Shown(line, p.cut)
	}
	_, err := io.WriteString(p.to, strings.Join(lines, "\n"))
	return len(text), err
}
