// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package limited

import (
	"cmp"
	"fmt"
	"time"
)

// Limits of the compilation of one policy.
type Limits struct {
	// CPU is a time of the CPU, which does not depend on how busy the machine is.
	CPU time.Duration `json:"cpu"`
	// Memory is that of the process, in bytes.
	Memory int `json:"memory"`
	// Stack is that of one goroutine, in bytes.
	Stack int `json:"stack"`
}

// DefaultLimits leave most of a Pod of 512 MiB to the agent. Policies of people take a few
// hundredths of them.
func DefaultLimits() Limits { return Limits{CPU: time.Second, Memory: 160 << 20, Stack: 32 << 20} }

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	return Limits{CPU: cmp.Or(l.CPU, d.CPU), Memory: cmp.Or(l.Memory, d.Memory), Stack: cmp.Or(l.Stack, d.Stack)}
}

// environment is that of the process. Its memory limit is below Memory, so that garbage is
// collected before the process ends because of it.
func (l Limits) environment() []string {
	return []string{"GOMAXPROCS=2", fmt.Sprintf("GOMEMLIMIT=%d", l.Memory/4*3), "GOTRACEBACK=single"}
}

// The limits in messages.
func (l Limits) overCPU() string    { return fmt.Sprintf("more than %v of CPU time", l.CPU) }
func (l Limits) overMemory() string { return fmt.Sprintf("more than %d MiB of memory", l.Memory>>20) }
func (l Limits) overStack() string  { return fmt.Sprintf("more than %d KiB of stack", l.Stack>>10) }
