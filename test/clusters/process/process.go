// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package process runs the programs of a test cluster as children of this process.
//
// It takes a command line and gives a handle that starts, pauses, ends and
// restarts it, with its output in a log file. Every child leads a process group
// of its own and dies with this process (on Linux). Only groups that were
// started here get signals, by their id.
package process

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopTimeout is how long a program may take to end after SIGTERM.
const stopTimeout = 10 * time.Second

// Process is one program, running or not. Use New.
type Process struct {
	name, path string
	args       []string
	log        string
	env        []string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
	err  error         // why it ended
}

// New describes a program; log is the file that its output is appended to and
// env is added to this process's environment. Nothing is started.
func New(name, path, log string, env []string, args ...string) *Process {
	return &Process{name: name, path: path, log: log, env: env, args: args}
}

// Name is the name given to New.
func (p *Process) Name() string { return p.name }

// Start starts the program; it fails if it runs already.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		return fmt.Errorf("%s runs already, as process %d", p.name, p.cmd.Process.Pid)
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", p.name, err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(p.path, p.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), p.env...)
	cmd.SysProcAttr = attributes()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	done := make(chan struct{})
	p.cmd, p.done, p.err = cmd, done, nil
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		close(done)
	}()
	return nil
}

// running needs the lock.
func (p *Process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Running reports whether the program was started and has not ended; a paused one runs.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running()
}

// PID is the id of the process that runs, or ran last; 0 if none ever did.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Stop asks the program to end, and kills it after ten seconds. It is no error if none runs.
func (p *Process) Stop() error {
	done, err := p.signal(syscall.SIGTERM)
	if err != nil || done == nil {
		return err
	}
	_ = p.Resume() // a paused program cannot end
	select {
	case <-done:
		return nil
	case <-time.After(stopTimeout):
		return p.Kill()
	}
}

// Kill ends the program at once, as a crash would, and waits until it is gone.
// It is no error if none runs.
func (p *Process) Kill() error {
	done, err := p.signal(syscall.SIGKILL)
	if err != nil || done == nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-time.After(stopTimeout):
		return fmt.Errorf("%s is not gone %v after SIGKILL", p.name, stopTimeout)
	}
}

// Pause stops the program from running on (SIGSTOP): its connections stay open and answer nothing.
func (p *Process) Pause() error {
	_, err := p.signal(syscall.SIGSTOP)
	return err
}

// Resume lets a paused program run on.
func (p *Process) Resume() error {
	_, err := p.signal(syscall.SIGCONT)
	return err
}

// signal reaches the whole group; done is nil if nothing runs.
func (p *Process) signal(s syscall.Signal) (done <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return nil, nil
	}
	if err := syscall.Kill(-p.cmd.Process.Pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return nil, fmt.Errorf("signal %s: %w", p.name, err)
	}
	return p.done, nil
}

// LogTail gives the last n lines of the log.
func (p *Process) LogTail(n int) string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// Await polls ready until it gives nil, the program ends, or timeout or ctx is
// over. Its error has the last answer and the end of the log.
func (p *Process) Await(ctx context.Context, timeout time.Duration, ready func(context.Context) error) error {
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	if done == nil {
		return fmt.Errorf("%s was never started", p.name)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-done:
			p.mu.Lock()
			ended := p.err
			p.mu.Unlock()
			if ended == nil {
				ended = errors.New("exit status 0")
			}
			return fmt.Errorf("%s ended before it was ready: %w; end of %s:\n%s", p.name, ended, p.log, p.LogTail(15))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready after %v: %w; end of %s:\n%s", p.name, timeout, err, p.log, p.LogTail(15))
		case <-tick.C:
		}
	}
}

// HTTPReady gives a check for Await: the URL answers 200.
func HTTPReady(client *http.Client, url string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", url, resp.Status)
		}
		return nil
	}
}
