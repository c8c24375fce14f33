// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package limited

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/comity-mcs/comity/policies/engine"
)

// Argument is the first argument of a process that compiles.
const Argument = "compile-policies"

// killTime is how long a process that was killed may take to end.
const killTime = 2 * time.Second

// Compiler compiles policies in other processes, one process at a time: each may take
// as much memory as the limit says.
type Compiler struct {
	executable string
	limits     Limits
	turn       chan struct{}
}

// Options of New.
type Options struct {
	// Executable is a program that calls Main when its first argument is Argument; this
	// program when empty.
	Executable string
	// Limits of one policy; DefaultLimits for those that are 0.
	Limits Limits
}

// New is a Compiler.
func New(o Options) (*Compiler, error) {
	if o.Executable == "" {
		var err error
		if o.Executable, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("find this program, to compile policies in another process: %w", err)
		}
	}
	return &Compiler{executable: o.Executable, limits: o.Limits.withDefaults(), turn: make(chan struct{}, 1)}, nil
}

// response is what the process writes for each policy.
type response struct {
	// Error is why the policy does not compile; empty if it does.
	Error string `json:"error,omitempty"`
	// Exceeded is the limit that the process ends by.
	Exceeded string `json:"exceeded,omitempty"`
}

// Try implements engine.Trial.
func (c *Compiler) Try(ctx context.Context, list []engine.Policy) []error {
	results := make([]error, len(list))
	missing := func(from int, err error) []error {
		for i := from; i < len(list); i++ {
			results[i] = fmt.Errorf("%w: %w", engine.ErrNoTrial, err)
		}
		return results
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return missing(0, errors.New("other policies are being compiled"))
	}
	for done := 0; done < len(list); {
		responses, ended, err := c.run(ctx, list[done:])
		if err != nil {
			return missing(done, err)
		}
		for _, r := range responses {
			if r.Error != "" {
				results[done] = errors.New(r.Error)
			}
			done++
		}
		switch {
		case done == len(list):
		case ctx.Err() != nil:
			return missing(done, errors.New("compiling it took too long, perhaps because this machine is busy"))
		default:
			results[done] = engine.TooCostly(list[done], ended)
			done++
		}
	}
	return results
}

// run compiles as many policies as one process does. ended says which limit ended it, if
// there are fewer responses than policies. The error is that of a process that did not
// start.
func (c *Compiler) run(ctx context.Context, list []engine.Policy) (responses []response, ended string, err error) {
	var input bytes.Buffer
	encoder := json.NewEncoder(&input)
	if err := encoder.Encode(c.limits); err != nil {
		return nil, "", fmt.Errorf("write the limits: %w", err)
	}
	for _, policy := range list {
		if err := encoder.Encode(policy); err != nil {
			return nil, "", fmt.Errorf("write policy %s: %w", policy.Name, err)
		}
	}
	cmd := exec.CommandContext(ctx, c.executable, Argument)
	cmd.Stdin, cmd.Env, cmd.WaitDelay = &input, c.limits.environment(), killTime
	stderr := &head{}
	cmd.Stderr = stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("start a process that compiles policies: %w", err)
	}
	responses, exceeded := read(stdout, len(list))
	err = cmd.Wait()
	if len(responses) == len(list) {
		return responses, "", nil
	}
	return responses, c.limits.reason(exceeded, stderr.String(), err), nil
}

// read reads responses until there are enough, or the process has ended.
func read(from io.Reader, enough int) (responses []response, exceeded string) {
	decoder := json.NewDecoder(bufio.NewReader(from))
	for len(responses) < enough {
		var r response
		if err := decoder.Decode(&r); err != nil {
			return responses, ""
		}
		if r.Exceeded != "" {
			return responses, r.Exceeded
		}
		responses = append(responses, r)
	}
	return responses, ""
}

// reason says what ended the process.
func (l Limits) reason(exceeded, stderr string, err error) string {
	switch {
	case exceeded != "":
		return exceeded
	case strings.Contains(stderr, "stack exceeds"):
		return l.overStack()
	case strings.Contains(stderr, "out of memory"), strings.Contains(stderr, "cannot allocate memory"):
		return l.overMemory()
	case err != nil:
		return fmt.Sprintf("more than a process may take (%v)", err)
	default:
		return "more than a process may take"
	}
}

// head keeps the beginning of what is written.
type head struct{ bytes.Buffer }

const maxHead = 4 << 10

// Write implements io.Writer.
func (h *head) Write(text []byte) (int, error) {
	if room := maxHead - h.Len(); room > 0 {
		h.Buffer.Write(text[:min(room, len(text))])
	}
	return len(text), nil
}
