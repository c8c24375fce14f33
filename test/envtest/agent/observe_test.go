// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/install"
)

// httpClient has a bound, as every wait has.
var httpClient = &http.Client{Timeout: 5 * time.Second}

// get is status code and body of a page of the agent; 0 while it does not answer.
func get(url string) (int, string) {
	response, err := httpClient.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, strings.TrimSpace(string(body))
}

// sample is one line of /metrics: name{labels} and value.
type sample struct {
	series string
	value  float64
}

// metrics are the samples whose series starts with prefix.
func (m *member) metrics(prefix string) ([]sample, error) {
	code, body := get(m.agent.MetricsURL())
	if code != http.StatusOK {
		return nil, fmt.Errorf("%s answers %d: %s", m.agent.MetricsURL(), code, body)
	}
	var out []sample
	for _, line := range strings.Split(body, "\n") {
		series, text, found := cutLast(line, " ")
		if !found || strings.HasPrefix(series, "#") || !strings.HasPrefix(series, prefix) {
			continue
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		out = append(out, sample{series, value})
	}
	return out, nil
}

func withPrefix(all []sample, prefix string) (out []sample) {
	for _, s := range all {
		if strings.HasPrefix(s.series, prefix) {
			out = append(out, s)
		}
	}
	return out
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// loops are the controllers that work on a leader.
var loops = []string{"publish", "import", "namespace-records", "member-record", "status-serviceexport", "status-serviceimport"}

// notConverged says why the agent of m still has something to do: it does not
// lead, has not read a peer, a loop has not looked at its objects, or a queue
// is not empty. It reads the metrics once, because it is asked often.
func (m *member) notConverged() error {
	all, err := m.metrics("")
	if err != nil {
		return err
	}
	if err := m.expect(all, "leader_election_master_status", 1); err != nil {
		return err
	}
	for _, loop := range loops {
		total := 0.0
		for _, s := range withPrefix(all, fmt.Sprintf("controller_runtime_reconcile_total{controller=%q", loop)) {
			total += s.value
		}
		if total == 0 {
			return fmt.Errorf("loop %s of %s has not run", loop, m.ID())
		}
	}
	for _, idle := range []string{"workqueue_depth", "controller_runtime_active_workers"} {
		if err := m.expect(all, idle, 0); err != nil {
			return err
		}
	}
	for _, peer := range others(m.ID()) {
		for _, unread := range []string{"NotRead", "Refused"} {
			if err := m.expect(all, fmt.Sprintf("comity_peer_state{peer=%q,state=%q}", peer, unread), 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// expect fails unless there are series with the prefix, and all have the value.
func (m *member) expect(all []sample, prefix string, value float64) error {
	samples := withPrefix(all, prefix)
	if len(samples) == 0 {
		return fmt.Errorf("%s has no metric %s yet", m.ID(), prefix)
	}
	for _, s := range samples {
		if s.value != value {
			return fmt.Errorf("%s: %s is %v, expected %v", m.ID(), s.series, s.value, value)
		}
	}
	return nil
}

// awaitConverged waits until the agents have nothing to do, now or at a time that they
// have set, and, for as long as a write takes to come back as an event, nobody wrote.
func awaitConverged(of ...string) {
	GinkgoHelper()
	for _, id := range of {
		Eventually(func() error { return members[id].notConverged() }).WithTimeout(ready).WithPolling(quiet / 20).Should(Succeed())
		Eventually(func() error { return members[id].unsettled() }).WithTimeout(forgotten).WithPolling(quiet / 5).Should(Succeed())
	}
	Eventually(func(g Gomega) {
		from := time.Now()
		g.Consistently(func() []string { return writesSince(from) }, quiet, quiet/5).Should(BeEmpty(), explained(from))
	}).WithTimeout(ready).Should(Succeed())
}

const (
	// quiet is how long nothing must happen before a state counts as final: longer than the
	// five seconds after which the status of a Peer is computed again, with its counts.
	quiet = 5500 * time.Millisecond
	// forgotten is when a replica that was killed no longer counts, and is counted no more.
	forgotten = 90 * time.Second
)

// writesSince lists the writes of all agents, those for leader election and
// heartbeats left out.
func writesSince(from time.Time) []string {
	GinkgoHelper()
	var out []string
	for _, id := range ids {
		writes, _ := members[id].agentWrites(from)
		for _, w := range writes {
			out = append(out, fmt.Sprintf("%s: %s %s %s/%s (%d) by %s", id, w.Verb, w.Resource, w.Namespace, w.Name, w.Code, w.User))
		}
	}
	return out
}

// agentWrites are the writes in m by agents, m's own and those of its peers;
// what leader election and the heartbeat wrote comes apart.
func (m *member) agentWrites(from time.Time) (writes, election []controlplane.Write) {
	GinkgoHelper()
	all, err := m.Writes(from)
	Expect(err).NotTo(HaveOccurred())
	for _, w := range all {
		if !strings.HasPrefix(w.User, "system:serviceaccount:"+install.Namespace+":") {
			continue
		}
		heartbeat := w.Namespace == model.ExchangeNamespace(model.ClusterID(m.ID())) && w.Name == m.ID()
		elects := w.Resource == "coordination.k8s.io/leases" && (w.Name == lease || w.Name == replicas || heartbeat || w.Verb == "create") ||
			// Who leads is told in the older kind of event, and nothing else is.
			w.Resource == "events" && w.Namespace == install.Namespace
		if elects {
			election = append(election, w)
		} else {
			writes = append(writes, w)
		}
	}
	return writes, election
}

// lease is the name of the Lease of the replica that writes, replicas that of the one in
// which each replica states which policies it enforces.
const (
	lease    = "comity-leader"
	replicas = "comity-replicas"
)

// events are what was told of an object, as "Type/Reason: note".
func (m *member) events(kind, name string) func(Gomega, context.Context) []string {
	return func(g Gomega, ctx context.Context) []string {
		var list eventsv1.EventList
		g.Expect(m.client.List(ctx, &list)).To(Succeed())
		var out []string
		for _, e := range list.Items {
			if e.Regarding.Kind == kind && e.Regarding.Name == name {
				out = append(out, fmt.Sprintf("%s/%s: %s", e.Type, e.Reason, e.Note))
			}
		}
		return out
	}
}

// logFile is what the agent of m writes.
func (m *member) logFile() string { return filepath.Join(m.dir, "comity.log") }

// logged are the lines of an agent's log that have every part.
func logged(path string, parts ...string) func(Gomega) []string {
	return func(g Gomega) []string {
		file, err := os.Open(path)
		g.Expect(err).NotTo(HaveOccurred())
		defer func() { _ = file.Close() }()
		var out []string
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			all := true
			for _, part := range parts {
				all = all && strings.Contains(lines.Text(), part)
			}
			if all {
				out = append(out, lines.Text())
			}
		}
		g.Expect(lines.Err()).NotTo(HaveOccurred())
		return out
	}
}
