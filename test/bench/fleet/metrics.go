// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Metrics are the agent's, by name with labels, as it serves them.
type Metrics map[string]float64

// Metrics reads those of the agent.
func (m *Member) Metrics(ctx context.Context) (Metrics, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.agent.MetricsURL(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("metrics of %s: %w", m.ID(), err)
	}
	defer func() { _ = resp.Body.Close() }()
	out := Metrics{}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, text, found := cutLast(lines.Text())
		if !found || strings.HasPrefix(name, "#") {
			continue
		}
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			out[name] = value
		}
	}
	return out, lines.Err()
}

func cutLast(line string) (name, value string, found bool) {
	i := strings.LastIndexByte(line, ' ')
	if i < 0 {
		return "", "", false
	}
	return line[:i], line[i+1:], true
}

// sum adds all series of a metric whose labels contain some text.
func (m Metrics) sum(metric, labels string) float64 {
	total := 0.0
	for name, value := range m {
		if rest, is := strings.CutPrefix(name, metric+"{"); is && strings.Contains(rest, labels) {
			total += value
		}
	}
	return total
}

// Reconciled is how often a controller has reconciled anything.
func (m Metrics) Reconciled(controller string) int {
	return int(m.sum("controller_runtime_reconcile_total", `controller="`+controller+`"`))
}

// Waiting is how much all queues hold or work on.
func (m Metrics) Waiting() int {
	return int(m.sum("workqueue_depth", "") + m.sum("controller_runtime_active_workers", ""))
}

// periodic are the controllers that look at everything they have every few seconds: they are
// never idle, and what they do then is no end of anything.
var periodic = []string{"peer-status", "exportpolicy"}

// Quiet is how long an agent must do nothing to count as idle.
const Quiet = 3 * time.Second

// WaitIdle waits until a controller has reconciled at least so often, and for
// Quiet nothing was reconciled and nothing waits.
func (m *Member) WaitIdle(ctx context.Context, controller string, reconciled int) error {
	_, err := m.IdleSince(ctx, time.Second, controller, reconciled)
	return err
}

// IdleSince is WaitIdle, and returns since when the agent is idle, at most one interval too late.
// It asks the agent once in each interval, which costs one with thousands of imports CPU time.
func (m *Member) IdleSince(ctx context.Context, interval time.Duration, controller string, reconciled int) (since time.Time, err error) {
	before := -1.0
	err = wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		asked := time.Now()
		now, err := m.Metrics(ctx)
		if err != nil {
			if !m.agent.Running() {
				return false, fmt.Errorf("the agent of %s ended:\n%s", m.ID(), m.agent.LogTail(5))
			}
			return false, ctx.Err() // it may be just starting
		}
		total := now.sum("controller_runtime_reconcile_total", "")
		for _, controller := range periodic {
			total -= float64(now.Reconciled(controller))
		}
		if total != before || now.Waiting() > 0 || now.Reconciled(controller) < reconciled {
			since, before = asked, total
			return false, nil
		}
		return time.Since(since) >= Quiet, nil
	})
	return since, err
}

// Memory is what an agent holds.
type Memory struct {
	// Live is what the last garbage collection found in use; Resident is what
	// the kernel counts.
	Live, Resident int
}

const (
	metricLive   = "go_gc_heap_live_bytes"
	metricCycles = "go_gc_cycles_total_gc_cycles_total"
)

// Memory measures after two more garbage collections, which reading the metrics
// brings about in the end: the answers are garbage.
func (m *Member) Memory(ctx context.Context) (Memory, error) {
	first, err := m.Metrics(ctx)
	if err != nil {
		return Memory{}, err
	}
	if _, has := first[metricLive]; !has {
		return Memory{}, errors.New("the agent does not tell " + metricLive)
	}
	for {
		now, err := m.Metrics(ctx)
		if err != nil {
			return Memory{}, err
		}
		if now[metricCycles] >= first[metricCycles]+2 {
			resident, err := m.resident()
			return Memory{Live: int(now[metricLive]), Resident: resident}, err
		}
	}
}

// ResetPeak begins a new peak of the agent's resident memory.
func (m *Member) ResetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", m.agent.PID()), []byte("5"), 0)
}

// Peak is the most that the agent held in resident memory since ResetPeak.
func (m *Member) Peak() (int, error) { return status(m.agent.PID(), "VmHWM:") }

func (m *Member) resident() (int, error) { return status(m.agent.PID(), "VmRSS:") }

// status is a size that the kernel tells of a process, in bytes.
func status(pid int, field string) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(status) {
		if fields := strings.Fields(string(line)); len(fields) >= 2 && fields[0] == field {
			kib, err := strconv.Atoi(fields[1])
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("the kernel does not tell %s", field)
}
