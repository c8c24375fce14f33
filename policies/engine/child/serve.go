// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package child

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// Argument is the first argument of a process that evaluates; the second one is for Serve.
const Argument = "evaluate-policies"

// Command is what the command line of a program with a Client needs, since it runs itself.
func Command() *cobra.Command {
	return &cobra.Command{
		Use: Argument, Short: "Evaluate policies from the standard input with a bound on memory", Args: cobra.ExactArgs(1), Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error { return Serve(args[0]) },
	}
}

const (
	// maxMemory is the bound of one process in bytes. Go takes 72 MiB without using them, and
	// more in parts of 64 MiB, of which ten policies need a third.
	maxMemory = 224 << 20
	maxStack  = 64 << 20
	// perCPU evaluations run at once: they share the memory of the process.
	perCPU = 2
	// exceeded begins the line that the process writes before it ends by itself.
	exceeded     = "it takes more than "
	exitExceeded = 3
)

// Serve is what the process does, until the end of the standard input. The argument has the
// options of its engine, as JSON.
func Serve(argument string) error {
	var o engine.Options
	if err := json.Unmarshal([]byte(argument), &o); err != nil {
		return fmt.Errorf("read the settings: %w", err)
	}
	debug.SetMaxStack(maxStack)
	// Garbage is collected before the bound is reached, but not so long before that what needs more than there is takes
	// seconds of collecting until it ends.
	debug.SetMemoryLimit(maxMemory * 3 / 4)
	if err := limitMemory(maxMemory); err != nil {
		return fmt.Errorf("limit the memory: %w", err)
	}
	return serve(o, pipe{os.Stdin, os.Stdout})
}

func serve(o engine.Options, conn io.ReadWriteCloser) error {
	o.Watch = func(what string, limit time.Duration) (stop func()) { return watch(o.Apart, what, limit) }
	all := rpc.NewServer()
	if err := all.RegisterName(service, &server{engine: engine.New(o), slots: make(chan struct{}, perCPU*runtime.GOMAXPROCS(0))}); err != nil {
		return err
	}
	all.ServeConn(conn)
	return nil
}

// watch ends the process when what is done until stop is called takes too much time of the
// CPU, which does not depend on how busy the machine is. What is done apart is named before,
// for it may end the process in other ways, too.
func watch(apart bool, what string, limit time.Duration) (stop func()) {
	name := func() { fmt.Fprintf(os.Stderr, "%c%s\n", named, what) }
	if apart {
		name()
	}
	begin, over := cpuTime(), &atomic.Bool{}
	timer := time.AfterFunc(limit, func() {
		for ; cpuTime()-begin < limit; time.Sleep(limit / 4) {
			if over.Load() {
				return
			}
		}
		if !over.Load() {
			name()
			fmt.Fprintf(os.Stderr, "%s%v of CPU time\n", exceeded, limit)
			os.Exit(exitExceeded)
		}
	})
	return func() {
		over.Store(true)
		timer.Stop()
	}
}

const service = "Engine"

// server has the calls of a process.
type server struct {
	engine *engine.Engine
	slots  chan struct{}
	// change is that of the policy in changed, when the engine had this digest.
	change          engine.Change
	changed, digest string
}

// Loaded is what a process acknowledges.
type Loaded struct {
	Errs    []string // of the policies, in their order; empty for one that can be used
	Digest  string
	Imports bool // there are policies on imports
}

// Load has an engine load policies.
func (s *server) Load(q Question, into *Loaded) error {
	var list []engine.Policy
	if err := json.Unmarshal(q.Policies, &list); err != nil {
		return err
	}
	into.Errs = make([]string, len(list))
	for i, one := range s.engine.Load(list) {
		if one.Err != nil {
			into.Errs[i] = one.Err.Error()
		}
	}
	into.Digest, into.Imports = s.engine.Digest(), s.engine.HasImportPolicies()
	return nil
}

// Question is what a call is about.
type Question struct {
	On       *engine.Subject
	Deadline time.Time // zero for none
	// Failed are the policies that are not evaluated.
	Failed map[string]string
	// Policies are those to load, or the one that changes, as JSON: gob does not keep every pointer.
	Policies []byte
}

func (q Question) context() (context.Context, context.CancelFunc) {
	if q.Deadline.IsZero() {
		return context.Background(), func() {}
	}
	return context.WithDeadline(context.Background(), q.Deadline)
}

// Answer is that of Evaluate.
type Answer struct {
	Verdict     decision.Verdict
	Evaluations []engine.Evaluation
}

// Evaluate evaluates the policies in use.
func (s *server) Evaluate(q Question, into *Answer) error {
	ctx, cancel := q.context()
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return fmt.Errorf("%d evaluations are running and none ended in time", cap(s.slots))
	}
	growStack(0)
	into.Verdict, into.Evaluations = s.engine.EvaluateSubject(ctx, q.On, q.Failed)
	return nil
}

// stackSize is what the stack of an evaluation takes, as a rule, in bytes.
const stackSize = 64 << 10

// growStack has the stack of this goroutine grow once, while nothing is on it. Go doubles a
// stack, and copies it, each time that it does not suffice: five times in each evaluation.
//
//go:noinline
func growStack(n int) byte {
	var room [stackSize]byte
	return room[n]
}

// Change says which stages a policy changes, or why it cannot be used.
func (s *server) Change(q Question, into *map[v1alpha1.Stage][2]bool) error {
	if s.changed != string(q.Policies) || s.digest != s.engine.Digest() {
		var policy engine.Policy
		if err := json.Unmarshal(q.Policies, &policy); err != nil {
			return err
		}
		change, err := s.engine.Change(policy)
		if err != nil {
			return err
		}
		s.change, s.changed, s.digest = change, string(q.Policies), s.engine.Digest()
	}
	*into = s.change.Stages
	return nil
}

// Compare is that of an engine.Change.
func (s *server) Compare(q Question, into *engine.Comparison) error {
	err := s.Change(q, &map[v1alpha1.Stage][2]bool{})
	if err == nil {
		ctx, cancel := q.context()
		defer cancel()
		*into, err = s.change.Compare(ctx, q.On)
	}
	return err
}
