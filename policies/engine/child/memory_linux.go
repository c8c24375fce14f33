// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package child

import (
	"os"
	"syscall"
	"time"
)

// limitMemory bounds what the process may write to. It has the kernel choose this process,
// and not the agent, if the Pod has no memory left.
func limitMemory(bytes uint64) error {
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0o600) // where there is a /proc
	return syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: bytes, Max: bytes})
}

// cpuTime is what this process has used of the CPU.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // it cannot fail for the process itself
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
