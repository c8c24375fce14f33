// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package tell prints a story of commands and their real output.
//
// It takes headlines, sentences, commands and outputs and gives plain text that
// reads the same in a log and on a terminal, where a spinner turns while one
// waits. It keeps the time of every step for a table at the end. It runs no
// command and judges nothing.
package tell

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/comity-mcs/comity/test/clusters/progress"
)

// Indents of what is said, and of what a command printed.
const (
	sayIndent    = "  "
	outputIndent = "      "
)

// Teller tells one story. Use New.
type Teller struct {
	clock progress.Clock
	steps []Step
	said  bool // something was printed since the last headline or empty line
}

// Step is how long one step took.
type Step struct {
	Title string
	Took  time.Duration
}

// New tells a story to out, starting now.
func New(out io.Writer) *Teller {
	return &Teller{clock: progress.Clock{Out: out, Start: time.Now()}}
}

// Step prints a headline with the time since the start, runs the step and
// remembers how long it took, whether or not it failed.
func (t *Teller) Step(title string, run func() error) error {
	began := time.Now()
	t.printf("\n%s %s\n", t.clock.Elapsed(), title)
	t.said = false
	err := run()
	t.steps = append(t.steps, Step{Title: title, Took: time.Since(began)})
	return err
}

// Say prints a sentence, set off from the commands above it.
func (t *Teller) Say(format string, args ...any) {
	t.gap()
	t.indented(sayIndent, fmt.Sprintf(format, args...))
}

// Command prints a command as one would type it.
func (t *Teller) Command(words ...string) {
	t.gap()
	t.indented(sayIndent+"  $ ", CommandLine(words...))
}

// Output prints what a command printed.
func (t *Teller) Output(text string) {
	t.indented(outputIndent, strings.TrimRight(text, "\n"))
	t.said = true
}

// Lines prints whole lines that are written to it, as output.
func (t *Teller) Lines() io.Writer { return lines{t} }

type lines struct{ teller *Teller }

func (l lines) Write(text []byte) (int, error) {
	l.teller.Output(string(text))
	return len(text), nil
}

// Table prints rows in columns, the first of them as the heading.
func (t *Teller) Table(rows [][]string) {
	t.gap()
	t.Output(Columns(rows))
}

// Wait runs run and shows meanwhile what for.
func (t *Teller) Wait(what string, run func() error) error { return t.clock.During(what, run) }

// Times prints how long each step took.
func (t *Teller) Times() {
	rows := [][]string{{"STEP", "SECONDS"}}
	var sum time.Duration
	for _, step := range t.steps {
		rows = append(rows, []string{step.Title, seconds(step.Took)})
		sum += step.Took
	}
	rows = append(rows, []string{"all", seconds(sum)})
	t.printf("\n")
	t.indented(sayIndent, strings.TrimRight(Columns(rows), "\n"))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%5.1f", d.Seconds()) }

// gap sets what follows off from output above it.
func (t *Teller) gap() {
	if t.said {
		t.printf("\n")
	}
	t.said = false
}

func (t *Teller) indented(indent, text string) {
	for _, line := range strings.Split(text, "\n") {
		t.printf("%s\n", strings.TrimRight(indent+line, " "))
	}
}

func (t *Teller) printf(format string, args ...any) { _, _ = fmt.Fprintf(t.clock.Out, format, args...) }
