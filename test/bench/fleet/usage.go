// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/comity-mcs/comity/test/clusters/controlplane"
)

// Usage is what processes have used and hold.
type Usage struct {
	CPU      time.Duration
	Resident int // bytes
}

// AgentUsage is that of the agent, and of the processes in which it evaluates policies. The pages
// of the program, which they share, count for the agent alone, as they do for a container.
func (m *Member) AgentUsage() (agent, children Usage, err error) {
	pid := m.agent.PID()
	if agent, err = usage(pid); err != nil {
		return agent, children, err
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return agent, children, err
	}
	for _, path := range stats {
		fields, err := statOf(path)
		if err != nil || fields[1] != strconv.Itoa(pid) {
			continue // it has ended, or is another's
		}
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		one, err := usage(child)
		if err != nil {
			continue
		}
		own, err := status(child, "RssAnon:")
		if err != nil {
			continue
		}
		children.CPU += one.CPU
		children.Resident += own
	}
	return agent, children, nil
}

// ServerUsage is that of the API server, without etcd.
func (m *Member) ServerUsage() (Usage, error) { return usage(m.PID(controlplane.APIServer)) }

// ticks is how many there are in a second of CPU time, on every platform of Linux.
const ticks = 100

func usage(pid int) (Usage, error) {
	fields, err := statOf(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, err
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	resident, err := status(pid, "VmRSS:")
	return Usage{CPU: time.Duration(user+system) * time.Second / ticks, Resident: resident}, err
}

// statOf are the fields of a stat file of /proc behind the name of the program: the state, the
// parent and so on.
func statOf(path string) ([]string, error) {
	stat, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])), nil
}

// Connections is how many TCP connections the agent has to a server on this machine.
func (m *Member) Connections(server string) (count int, err error) {
	address, err := url.Parse(server)
	if err != nil {
		return 0, err
	}
	port, err := strconv.Atoi(address.Port())
	if err != nil {
		return 0, err
	}
	sockets, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", m.agent.PID()))
	if err != nil {
		return 0, err
	}
	own := map[string]bool{}
	for _, path := range sockets {
		target, _ := os.Readlink(path) // it may be closed by now
		if inode, is := strings.CutPrefix(target, "socket:["); is {
			own[strings.TrimSuffix(inode, "]")] = true
		}
	}
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(table)) {
		const remote, state, inode, established = 2, 3, 9, "01"
		fields := strings.Fields(line)
		if len(fields) > inode && strings.HasSuffix(fields[remote], fmt.Sprintf(":%04X", port)) && fields[state] == established && own[fields[inode]] {
			count++
		}
	}
	return count, nil
}
