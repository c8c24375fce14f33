// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package child

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/comity-mcs/comity/policies/engine"
)

// death is the error of a call during which the process ended.
type death struct {
	of  string // the policy, or the subject, that it is known to be due to; empty if none is
	why string
}

// Error implements error.
func (d *death) Error() string { return "the process that evaluates policies ended: " + d.why }

// asDeath is the death in an error; nil if there is none.
func asDeath(err error) *death {
	died, _ := errors.AsType[*death](err)
	return died
}

// errLate is the error of a call that was not answered in time.
var errLate = errors.New("the policies were not evaluated in time")

// process is one process. All methods are safe for concurrent use.
type process struct {
	cmd    *exec.Cmd
	rpc    *rpc.Client
	stderr stderr
	done   chan struct{} // closed when it has ended
	died   *death        // why, then
	loaded atomic.Pointer[loaded]
}

// startProcess runs this program, which calls Serve.
func startProcess(o engine.Options) (*process, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, to evaluate policies in another process: %w", err)
	}
	argument, _ := json.Marshal(o) // names and numbers
	p := &process{cmd: exec.Command(executable, Argument, string(argument)), done: make(chan struct{})}
	p.cmd.Env = []string{"GOTRACEBACK=none"}
	p.cmd.Stderr = &p.stderr
	in, err := p.cmd.StdinPipe()
	out, failed := p.cmd.StdoutPipe()
	if err := errors.Join(err, failed); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a process that evaluates policies: %w", err)
	}
	p.rpc = rpc.NewClient(pipe{out, in})
	go func() {
		err := p.cmd.Wait() // an answer that was not read yet is lost
		p.died = p.stderr.death(err)
		close(p.done)
	}()
	return p, nil
}

// pipe is the connection of the two processes.
type pipe struct {
	io.Reader
	io.WriteCloser
}

// end kills it, unless it has ended.
func (p *process) end() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// has reports whether it lives and has these policies, or younger ones. p may be nil.
func (p *process) has(want *loaded) bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
	}
	has := p.loaded.Load()
	return want == nil || has != nil && has.revision >= want.revision
}

// call waits for the answer to a call. It has one after ctx ended, too; reply is not to be
// read then.
func (p *process) call(ctx context.Context, method string, q Question, reply any) error {
	q.Deadline, _ = ctx.Deadline()
	call := p.rpc.Go(service+"."+method, q, reply, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
	case <-ctx.Done():
		return errLate
	}
	if call.Error == nil || isAnswer(call.Error) {
		return call.Error
	}
	p.end() // or it wrote what cannot be read
	return p.died
}

// isAnswer reports whether an error is what a process answered.
func isAnswer(err error) bool {
	_, is := errors.AsType[rpc.ServerError](err)
	return is
}

// stderr is what a process writes: what it does, and why it ends.
type stderr struct {
	mu   sync.Mutex
	text []byte
}

// named begins the name of what is done, as engine.Options.Watch has it.
const named = 0

// Write implements io.Writer. It keeps what follows the last name, and the beginning of that.
func (s *stderr) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := append(s.text, text...)
	all = all[max(0, bytes.LastIndexByte(all, named)):]
	s.text = all[:min(len(all), 4<<10)]
	return len(text), nil
}

// reset forgets the name.
func (s *stderr) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = nil
}

// death says what ended the process.
func (s *stderr) death(err error) *death {
	d, text := &death{}, string(s.text)
	if len(text) > 0 && text[0] == named {
		d.of, text, _ = strings.Cut(text[1:], "\n")
	}
	switch first, _, _ := strings.Cut(text, "\n"); {
	case strings.HasPrefix(text, exceeded):
		d.why = first
	case strings.Contains(text, "stack exceeds"):
		d.why = fmt.Sprintf("it needs more than %d MiB of stack", maxStack>>20)
	case strings.Contains(text, "out of memory"), strings.Contains(text, "cannot allocate memory"):
		d.why = fmt.Sprintf("it needs more than %d MiB of memory", maxMemory>>20)
	default:
		d.why = strings.TrimSpace(fmt.Sprintf("it takes more than a process may (%v) %s", err, first))
	}
	return d
}

// worker keeps a process with policies.
type worker struct {
	options engine.Options // of the engine in it
	turn    chan struct{}  // of whoever starts a process, or has it alone
	live    atomic.Pointer[process]
}

func newWorker(o engine.Options) *worker { return &worker{options: o, turn: make(chan struct{}, 1)} }

// lock waits for the turn.
func (w *worker) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case w.turn <- struct{}{}:
		return func() { <-w.turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: others are being evaluated", errLate)
	}
}

// process is one that lives and has these policies, or younger ones.
func (w *worker) process(ctx context.Context, want *loaded) (*process, error) {
	if p := w.live.Load(); p.has(want) {
		return p, nil
	}
	unlock, err := w.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return w.renewed(ctx, want)
}

// renewed is process for whoever has the turn. If it is late, the process goes on loading, and has
// most of it done for whoever comes next.
func (w *worker) renewed(ctx context.Context, want *loaded) (p *process, err error) {
	if p = w.live.Load(); !p.has(nil) {
		if p, err = startProcess(w.options); err != nil {
			return nil, err
		}
		w.live.Store(p)
	}
	if p.has(want) {
		return p, nil
	}
	has := *want
	has.Loaded = Loaded{}
	if err := p.call(ctx, "Load", Question{Policies: want.text}, &has.Loaded); err != nil {
		return nil, err
	}
	p.loaded.Store(&has)
	return p, nil
}
