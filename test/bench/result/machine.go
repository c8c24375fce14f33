// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// Machine is where a part was measured, and what.
type Machine struct {
	// Build is the commit that was measured, and Day when; both are empty for builds before these were kept.
	Build, Day     string `json:",omitempty"`
	CPUs           int
	Model          string
	MemoryGiB      int
	Go, OS, Kernel string
	Versions       string // of what a cluster is made of
}

// ThisMachine describes the machine that this runs on, and the commit in its working directory.
func ThisMachine() Machine {
	build, err := exec.Command("git", "describe", "--always", "--dirty", "--abbrev=10").Output()
	if err != nil {
		build = []byte("unknown")
	}
	// What follows the version is the distributor's own name of the build.
	kernel, _, _ := strings.Cut(firstLine("/proc/sys/kernel/osrelease"), "-")
	return Machine{
		Build: strings.TrimSpace(string(build)), Day: time.Now().UTC().Format(time.DateOnly),
		CPUs: runtime.NumCPU(), Model: cpuModel(), MemoryGiB: memory(), Go: runtime.Version(),
		OS: runtime.GOOS + "/" + runtime.GOARCH, Kernel: kernel,
	}
}

// String is a sentence.
func (m Machine) String() string {
	build := "an earlier build"
	if m.Build != "" {
		build = m.Build + " on " + m.Day
	}
	text := fmt.Sprintf("Measured with %s: %d CPUs (%s, %d GiB, %s, kernel %s), %s", build, m.CPUs, m.Model, m.MemoryGiB, m.OS, m.Kernel, m.Go)
	if m.Versions != "" {
		text += ", " + m.Versions
	}
	return text + "."
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
