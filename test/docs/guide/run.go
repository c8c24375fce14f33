// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package guide

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// Runner runs blocks.
type Runner struct {
	// Dir is the directory to run in, Env the whole environment.
	Dir string
	Env []string
	// Table is applied to every block.
	Table []Substitution
	// Timeout bounds one block.
	Timeout time.Duration
	// Out receives each command, its output as it comes, and how long it took.
	Out io.Writer
	// Begin is what elapsed times count from.
	Begin time.Time
}

// Run runs the blocks in order, each in a shell of its own that ends at the first
// command that fails. It gives all that they printed. The error names the line of
// the document and has the end of the output.
func (r Runner) Run(ctx context.Context, blocks []Block) (string, error) {
	var all bytes.Buffer
	for _, b := range blocks {
		if err := r.run(ctx, b, &all); err != nil {
			return all.String(), fmt.Errorf("the block at line %d, in section %q, failed: %w", b.Line, b.Section, err)
		}
	}
	return all.String(), nil
}

func (r Runner) run(ctx context.Context, b Block, all *bytes.Buffer) error {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	text := substitute(b.Text, r.Table)
	r.print("%s (line %d)\n    $ %s\n", b.Section, b.Line, strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    > "))
	began := time.Now()
	out := &lines{out: r.Out}
	cmd := exec.CommandContext(ctx, "bash", "-eu", "-o", "pipefail", "-c", text)
	cmd.Dir, cmd.Env, cmd.WaitDelay = r.Dir, r.Env, 5*time.Second
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	out.flush()
	all.Write(out.all.Bytes())
	if ctx.Err() != nil {
		err = errors.Join(fmt.Errorf("ended after %s: %w", time.Since(began).Round(time.Second), ctx.Err()), err)
	}
	if err != nil {
		printed := strings.Split(strings.TrimSpace(out.all.String()), "\n")
		return fmt.Errorf("%w:\n%s\nit printed last:\n%s", err, text, strings.Join(printed[max(0, len(printed)-25):], "\n"))
	}
	r.print("took %.1fs\n", time.Since(began).Seconds())
	return nil
}

func (r Runner) print(format string, args ...any) {
	_, _ = fmt.Fprintf(r.Out, "[%6.1fs] %s", time.Since(r.Begin).Seconds(), fmt.Sprintf(format, args...))
}

// lines keeps what is written to it, and passes it on with an indent, line by line.
type lines struct {
	mu      sync.Mutex
	out     io.Writer
	all     bytes.Buffer
	pending []byte
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.Write(p)
	l.pending = append(l.pending, p...)
	for {
		line, rest, complete := bytes.Cut(l.pending, []byte("\n"))
		if !complete {
			return len(p), nil
		}
		_, _ = fmt.Fprintf(l.out, "    | %s\n", line)
		l.pending = bytes.Clone(rest)
	}
}

// flush passes on what no line break followed.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) > 0 {
		_, _ = fmt.Fprintf(l.out, "    | %s\n", l.pending)
	}
	l.pending = nil
}
