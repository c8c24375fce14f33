// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package limited

import (
	"os"
	"syscall"
)

// limitProcess sets limits of the kernel, behind those that the process checks itself: for what
// happens between two checks. They are wide, since Go reserves more than it uses. It has
// the kernel choose this process, and not the agent, if the Pod has no memory left.
func limitProcess(l Limits) {
	cpu := uint64((cpuTime() + maxPolicies*l.CPU).Seconds()) + 1
	_ = syscall.Setrlimit(syscall.RLIMIT_CPU, &syscall.Rlimit{Cur: cpu, Max: cpu}) // lowering is always allowed
	data := uint64(reserved*l.Memory) + reservedByGo
	_ = syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: data, Max: data})
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0o600) // where there is a /proc
}

const (
	// maxPolicies is as many as a cluster may have that need all of their time.
	maxPolicies = 60
	// reserved is how many times the memory in use Go may have reserved.
	reserved     = 2
	reservedByGo = 256 << 20
)
