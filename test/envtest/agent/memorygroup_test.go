// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	. "github.com/onsi/gomega"
)

// memoryGroup is a control group whose processes may take a limited amount of memory
// together, as those of a Pod may. It has version 2 of control groups, or 1.
type memoryGroup struct {
	dir                string
	limit, peak, kills string // names of files
}

// newMemoryGroup makes a group. The error says why there can be none on this machine.
func newMemoryGroup(bytes int) (*memoryGroup, error) {
	name := fmt.Sprintf("comity-test-%d", os.Getpid())
	g := &memoryGroup{dir: filepath.Join("/sys/fs/cgroup", name), limit: "memory.max", peak: "memory.peak", kills: "memory.events"}
	if _, err := os.Stat("/sys/fs/cgroup/memory/memory.limit_in_bytes"); err == nil {
		g = &memoryGroup{
			dir: filepath.Join("/sys/fs/cgroup/memory", name), limit: "memory.limit_in_bytes", peak: "memory.max_usage_in_bytes", kills: "memory.oom_control",
		}
	}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(g.dir, g.limit), []byte(strconv.Itoa(bytes)), 0o600); err != nil {
		_ = os.Remove(g.dir) // it is empty
		return nil, err
	}
	return g, nil
}

// program is a program in dir that is binary in the group.
func (g *memoryGroup) program(dir, binary string) (string, error) {
	script := fmt.Sprintf("#!/bin/sh\nset -e\necho $$ >'%s/cgroup.procs'\nexec '%s' \"$@\"\n", g.dir, binary)
	path := filepath.Join(dir, "comity-in-a-group")
	return path, os.WriteFile(path, []byte(script), 0o755) //nolint:gosec // it is a program
}

// usage is how many processes the kernel has ended for lack of memory, and how much all
// of the group took at most, in bytes.
func (g *memoryGroup) usage() (killed, peak int, err error) {
	events, err := os.ReadFile(filepath.Join(g.dir, g.kills))
	if err != nil {
		return 0, 0, err
	}
	known := false
	for line := range strings.Lines(string(events)) {
		if count, found := strings.CutPrefix(line, "oom_kill "); found {
			if killed, err = strconv.Atoi(strings.TrimSpace(count)); err != nil {
				return 0, 0, err
			}
			known = true
		}
	}
	if !known {
		return 0, 0, fmt.Errorf("%s/%s does not count oom_kill", g.dir, g.kills)
	}
	text, err := os.ReadFile(filepath.Join(g.dir, g.peak))
	if err != nil {
		return killed, 0, err
	}
	peak, err = strconv.Atoi(strings.TrimSpace(string(text)))
	return killed, peak, err
}

// remove removes the group once its processes have ended.
func (g *memoryGroup) remove() {
	Eventually(func() error { return os.Remove(g.dir) }).Should(Succeed())
}
