// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/comity-mcs/comity/test/clusters/process"
)

func shell(t *testing.T, script string) *process.Process {
	t.Helper()
	p := process.New("shell", "/bin/sh", filepath.Join(t.TempDir(), "log"), []string{"WORD=hello"}, "-c", script)
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// logged is ready once the log has the text.
func logged(p *process.Process, text string) func(context.Context) error {
	return func(context.Context) error {
		if !strings.Contains(p.LogTail(100), text) {
			return errors.New("the log lacks " + text)
		}
		return nil
	}
}

func TestAProcessIsKilledWithItsGroupAndStartsAgain(t *testing.T) {
	p := shell(t, `sleep 1000 & echo "$WORD $$"; wait`)
	for range 2 {
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		if err := p.Await(t.Context(), 10*time.Second, logged(p, "hello")); err != nil {
			t.Fatal(err)
		}
		if err := p.Start(); err == nil || !strings.Contains(err.Error(), "shell runs already") {
			t.Errorf("a second start gives %v", err)
		}
		if err := p.Kill(); err != nil || p.Running() {
			t.Fatalf("after Kill: %v, running %t", err, p.Running())
		}
	}
	if err := p.Stop(); err != nil {
		t.Errorf("stopping what does not run gives %v", err)
	}
}

func TestAPausedProcessCanBeStopped(t *testing.T) {
	p := shell(t, `trap 'echo bye; exit' TERM; echo ready; while :; do sleep 0.05; done`)
	if err := errors.Join(p.Start(), p.Await(t.Context(), 10*time.Second, logged(p, "ready")), p.Pause()); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err != nil || p.Running() || !strings.Contains(p.LogTail(1), "bye") {
		t.Errorf("after Stop: %v, running %t, log %q", err, p.Running(), p.LogTail(1))
	}
}

func TestAwaitSaysWhyAProcessIsNotReady(t *testing.T) {
	never := func(context.Context) error { return errors.New("no answer") }
	ended := shell(t, "echo no such flag; exit 3")
	if err := ended.Start(); err != nil {
		t.Fatal(err)
	}
	err := ended.Await(t.Context(), 10*time.Second, never)
	if err == nil || !strings.Contains(err.Error(), "ended before it was ready: exit status 3") || !strings.Contains(err.Error(), "no such flag") {
		t.Errorf("a process that ended gives %v", err)
	}
	slow := shell(t, "echo still busy; sleep 1000")
	if err := slow.Start(); err != nil {
		t.Fatal(err)
	}
	if err := slow.Await(t.Context(), 10*time.Second, logged(slow, "still busy")); err != nil {
		t.Fatal(err)
	}
	err = slow.Await(t.Context(), 300*time.Millisecond, never)
	if err == nil || !strings.Contains(err.Error(), "not ready after 300ms: no answer") || !strings.Contains(err.Error(), "still busy") {
		t.Errorf("a process that takes too long gives %v", err)
	}
}
