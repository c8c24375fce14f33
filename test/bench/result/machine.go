// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Machine is where it was measured.
type Machine struct {
	CPUs           int
	Model          string
	MemoryGiB      int
	Go, OS, Kernel string
	Versions       string // of what a cluster is made of
}

// ThisMachine describes the machine that this runs on.
func ThisMachine() Machine {
	// What follows the version is the distributor's own name of the build.
	kernel, _, _ := strings.Cut(firstLine("/proc/sys/kernel/osrelease"), "-")
	return Machine{
		CPUs: runtime.NumCPU(), Model: cpuModel(), MemoryGiB: memory(), Go: runtime.Version(),
		OS: runtime.GOOS + "/" + runtime.GOARCH, Kernel: kernel,
	}
}

// Load1 is the load average of the last minute.
func Load1() float64 {
	var load float64
	if _, err := fmt.Sscan(firstLine("/proc/loadavg"), &load); err != nil {
		return -1
	}
	return load
}

func memory() int {
	var kib int
	if _, err := fmt.Sscanf(valueOf("/proc/meminfo", "MemTotal"), "%d kB", &kib); err != nil {
		return 0
	}
	return (kib + 1<<19) >> 20
}

func cpuModel() string { return valueOf("/proc/cpuinfo", "model name") }

// valueOf is what a file of "key: value" lines says of a key first.
func valueOf(file, key string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func firstLine(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line)
}
