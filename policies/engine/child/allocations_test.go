// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package child

import (
	"fmt"
	"net"
	"net/rpc"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/source"
)

// inProcess has both sides of the pipe in this process.
func inProcess(t testing.TB, list ...engine.Policy) *Client {
	t.Helper()
	c := New(engine.Options{Timeout: time.Minute})
	for _, w := range []*worker{c.main, c.spare} {
		agent, evaluator := net.Pipe()
		t.Cleanup(func() { _ = agent.Close() })
		o := w.options
		o.Apart = false
		go func() { _ = serve(o, evaluator) }()
		w.live.Store(&process{rpc: rpc.NewClient(agent), done: make(chan struct{})})
	}
	for _, r := range c.Load(list) {
		if r.Err != nil {
			t.Fatalf("policy %s: %v", r.Name, r.Err)
		}
	}
	return c
}

func baselines(t testing.TB) (list []engine.Policy) {
	t.Helper()
	found, err := source.Read("../../../charts/comity/files/policies")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range found {
		list = append(list, engine.FromObject(b.Object, time.Now()))
	}
	return list
}

// inputOf is a request in a clusterset with that many clusters.
func inputOf(clusters int) decision.Input {
	meta := metav1.ObjectMeta{
		Namespace: "shop", Name: "db", UID: "0f2f1a9c-9f8b-4c43-8f0a-3f6a0d5c2d11", ResourceVersion: "1", Generation: 1, CreationTimestamp: metav1.Unix(1e9, 0),
		Labels:      map[string]string{"app.kubernetes.io/name": "db", "app.kubernetes.io/instance": "shop", "app.kubernetes.io/managed-by": "Helm"},
		Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}", "meta.helm.sh/release-name": "db"},
	}
	in := decision.Input{
		APIVersion: decision.InputVersion, Operation: decision.Create, Subject: decision.SubjectServiceExport,
		UserInfo:  &decision.UserInfo{Username: "jane", Groups: []string{"devs"}},
		Object:    &mcsv1beta1.ServiceExport{ObjectMeta: meta},
		Service:   &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}},
		Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		Cluster:   "a", Scope: decision.Scope{All: true}, NamespaceScope: decision.Scope{All: true}, EffectiveScope: decision.Scope{All: true},
		Peers: map[string]decision.Peer{}, Destinations: []decision.Destination{{}},
	}
	for n := range clusters {
		id := fmt.Sprintf("cluster-%d", n)
		in.Peers[id] = decision.Peer{Namespace: decision.PeerNamespace{Presence: decision.Present}}
		in.Destinations[0].Clusters = append(in.Destinations[0].Clusters, id)
	}
	return in
}

// allocations of one request on both sides of the pipe, with what is kept between requests
// there.
func allocations(t *testing.T, clusters int) float64 {
	t.Helper()
	c, in := inProcess(t, baselines(t)...), inputOf(clusters)
	return testing.AllocsPerRun(300, func() {
		if v := c.Evaluate(t.Context(), in); v.Outcome != decision.Allowed {
			t.Fatal(v)
		}
	})
}

func TestAllocationsDoNotGrowWithTheClusters(t *testing.T) {
	few, many := allocations(t, 5), allocations(t, 50)
	t.Logf("%.0f and %.0f allocations", few, many)
	if many > few+5 || many > 440 {
		t.Errorf("%.0f allocations with 5 clusters, %.0f with 50", few, many)
	}
}

// BenchmarkBothSides is one request from the input as Go values to the verdict.
func BenchmarkBothSides(b *testing.B) {
	for _, clusters := range []int{5, 50, 200} {
		b.Run(fmt.Sprintf("clusters=%d", clusters), func(b *testing.B) {
			c, in := inProcess(b, baselines(b)...), inputOf(clusters)
			b.ReportAllocs()
			for b.Loop() {
				c.Evaluate(b.Context(), in)
			}
		})
	}
}

// Ten policies and what is kept of many inputs leave most of the memory of a process to what
// one evaluation needs.
func TestTenPoliciesHaveRoom(t *testing.T) {
	var list []engine.Policy
	for n := range 10 {
		policy := baselines(t)[n%3]
		policy.Rego = strings.Replace(policy.Rego, "package comity.policies.", fmt.Sprintf("package comity.policies.p%d_", n), 1)
		policy.Name = fmt.Sprintf("p%d", n)
		policy.Rego = strings.ReplaceAll(policy.Rego, "data.comity.params.", fmt.Sprintf("data.comity.params.p%d_", n))
		list = append(list, policy)
	}
	c := New(engine.Options{Timeout: time.Minute})
	t.Cleanup(c.Close)
	for _, r := range c.Load(list) {
		if r.Err != nil {
			t.Fatalf("policy %s: %v", r.Name, r.Err)
		}
	}
	for n := range 3000 {
		in := inputOf(50) // with peers of its own
		in.Service.Name = fmt.Sprint(n)
		if v := c.Evaluate(t.Context(), in); v.Outcome != decision.Allowed {
			t.Fatal(v)
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.main.live.Load().cmd.Process.Pid))
	if err != nil {
		t.Skip(err) // there is no /proc
	}
	for _, line := range strings.Split(string(status), "\n") {
		if name, rest, _ := strings.Cut(line, ":"); name == "RssAnon" || name == "VmData" {
			var size int
			if _, err := fmt.Sscanf(rest, "%d", &size); err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %d MiB", name, size>>10)
			if name == "RssAnon" && size > maxMemory>>10/2 {
				t.Errorf("the process has %d MiB of its %d", size>>10, maxMemory>>20)
			}
		}
	}
}

// BAD INPUT: a tenant with a thousand Services of huge annotations. What is kept of inputs would
// end the process, and the policies would be to blame.
func TestHugeServicesDoNotFillTheMemory(t *testing.T) {
	c := New(engine.Options{Timeout: time.Minute})
	t.Cleanup(c.Close)
	c.Load(baselines(t))
	before := c.main.live.Load()
	in := inputOf(1)
	service := *in.Service
	for n := range 1000 {
		service.Annotations = map[string]string{"n": fmt.Sprint(n), "huge": strings.Repeat("x", 250<<10)}
		in.Service = &service
		if v := c.Evaluate(t.Context(), in); v.Outcome != decision.Allowed {
			t.Fatalf("after %d Services: %v", n, v)
		}
	}
	if !before.has(nil) {
		t.Error("the process ended")
	}
}
