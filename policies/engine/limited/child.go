// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package limited

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/comity-mcs/comity/policies/engine"
)

// tick is how often the limits are checked.
const tick = 2 * time.Millisecond

// exitExceeded is the exit code of a process that ends because of a limit.
const exitExceeded = 3

// Main reads limits from in and then policies until its end, compiles each and writes a
// response to out. The error is one of the streams, or of the engine itself.
func Main(in io.Reader, out io.Writer) error {
	decoder := json.NewDecoder(in)
	var limits Limits
	if err := decoder.Decode(&limits); err != nil {
		return fmt.Errorf("read the limits: %w", err)
	}
	debug.SetMaxStack(limits.Stack)
	limitProcess(limits)
	e, err := engine.New(engine.Options{})
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(out)
	var began atomic.Int64 // the CPU time at the beginning of the policy
	began.Store(int64(cpuTime()))
	go limits.watch(&began, json.NewEncoder(out))
	for {
		var policy engine.Policy
		if err := decoder.Decode(&policy); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a policy: %w", err)
		}
		began.Store(int64(cpuTime()))
		r := response{}
		// As the agent would: alone, and then ready to be evaluated.
		if err := e.Check(policy); err != nil {
			r.Error = err.Error()
		} else if results := e.Load([]engine.Policy{policy}); results[0].Err != nil {
			r.Error = results[0].Err.Error()
		}
		if err := encoder.Encode(r); err != nil {
			return fmt.Errorf("write a result: %w", err)
		}
	}
}

// watch ends the process when a policy exceeds a limit.
func (l Limits) watch(began *atomic.Int64, encoder *json.Encoder) {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	for range time.Tick(tick) {
		metrics.Read(samples)
		switch {
		case samples[0].Value.Uint64()-samples[1].Value.Uint64() > uint64(l.Memory):
			end(encoder, l.overMemory())
		case cpuTime()-time.Duration(began.Load()) > l.CPU:
			end(encoder, l.overCPU())
		}
	}
}

// end writes the limit. What the other goroutine may be writing at this moment is of no
// use: it ends with the process.
func end(encoder *json.Encoder, exceeded string) {
	_ = encoder.Encode(response{Exceeded: exceeded}) // the exit code says it as well
	os.Exit(exitExceeded)
}
