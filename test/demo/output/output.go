// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package output prints the steps of the demo: sentences, commands and their real
// output.
//
// It takes headlines, sentences, commands and outputs. It gives plain text that
// reads the same in a log and on a terminal, where a spinner turns during a wait,
// and a table of how long each step took. It runs no command and checks nothing.
package output

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/comity-mcs/comity/test/clusters/progress"
)

// Indents of sentences, and of what a command printed.
const (
	textIndent   = "  "
	outputIndent = "      "
)

// Printer prints the output of one run. Use New.
type Printer struct {
	clock   progress.Clock
	steps   []Step
	printed bool // something was printed since the last headline or empty line
}

// Step is how long one step took.
type Step struct {
	Title string
	Took  time.Duration
}

// New prints to out; times count from now.
func New(out io.Writer) *Printer {
	return &Printer{clock: progress.Clock{Out: out, Start: time.Now()}}
}

// Step prints a headline with the time since the start, runs the step and
// remembers how long it took, whether or not it failed.
func (t *Printer) Step(title string, run func() error) error {
	began := time.Now()
	t.printf("\n%s %s\n", t.clock.Elapsed(), title)
	t.printed = false
	err := run()
	t.steps = append(t.steps, Step{Title: title, Took: time.Since(began)})
	return err
}

// Print prints a sentence, set off from the commands above it.
func (t *Printer) Print(format string, args ...any) {
	t.gap()
	t.indented(textIndent, fmt.Sprintf(format, args...))
}

// Command prints a command as one would type it.
func (t *Printer) Command(words ...string) {
	t.gap()
	t.indented(textIndent+"  $ ", CommandLine(words...))
}

// Output prints what a command printed.
func (t *Printer) Output(text string) {
	t.indented(outputIndent, strings.TrimRight(text, "\n"))
	t.printed = true
}

// Lines prints whole lines that are written to it, as output.
func (t *Printer) Lines() io.Writer { return lines{t} }

type lines struct{ printer *Printer }

func (l lines) Write(text []byte) (int, error) {
	l.printer.Output(string(text))
	return len(text), nil
}

// Table prints rows in columns, the first of them as the heading.
func (t *Printer) Table(rows [][]string) {
	t.gap()
	t.Output(Columns(rows))
}

// Wait runs run and shows meanwhile what for.
func (t *Printer) Wait(what string, run func() error) error { return t.clock.During(what, run) }

// Times prints how long each step took.
func (t *Printer) Times() {
	rows := [][]string{{"STEP", "SECONDS"}}
	var sum time.Duration
	for _, step := range t.steps {
		rows = append(rows, []string{step.Title, seconds(step.Took)})
		sum += step.Took
	}
	rows = append(rows, []string{"all", seconds(sum)})
	t.printf("\n")
	t.indented(textIndent, strings.TrimRight(Columns(rows), "\n"))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%5.1f", d.Seconds()) }

// gap sets what follows off from output above it.
func (t *Printer) gap() {
	if t.printed {
		t.printf("\n")
	}
	t.printed = false
}

func (t *Printer) indented(indent, text string) {
	for _, line := range strings.Split(text, "\n") {
		t.printf("%s\n", strings.TrimRight(indent+line, " "))
	}
}

func (t *Printer) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(t.clock.Out, format, args...)
}
