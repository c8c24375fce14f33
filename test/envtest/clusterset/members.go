// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package clusterset

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/clusters/ports"
	"github.com/comity-mcs/comity/test/envtest/suite"
	"github.com/comity-mcs/comity/test/install"
)

const (
	clusterset = "test"
	// ready is how long agents that start at once may take on two cores.
	ready = 60 * time.Second
)

// Set is a clusterset.
type Set struct {
	// Members by cluster id.
	Members map[string]*Member
	// flags are given to each agent, before its own.
	flags           []string
	dir             string
	binary, kubectl string
}

// Member is one cluster of the set and its agent.
type Member struct {
	*controlplane.Cluster
	// Client is an administrator's, without a cache.
	Client client.Client
	// Agent is what of it runs, or ran last. It is started again when it ends by
	// itself, as it does when it loses its leadership.
	Agent *install.Agent
	set   *Set
	dir   string
	ports []int
	mu    sync.Mutex // while the agent's process is started or replaced
}

// New builds the agent; every agent of the set gets flags.
func New(ctx context.Context, flags ...string) *Set {
	ginkgo.GinkgoHelper()
	suite.LogToGinkgo()
	kubectl, err := install.Kubectl(ctx)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	dir := ginkgo.GinkgoT().TempDir()
	s := &Set{
		Members: map[string]*Member{}, flags: flags, dir: dir, binary: filepath.Join(dir, "comity"), kubectl: kubectl,
	}
	gomega.Expect(install.BuildForTests(ctx, s.binary)).To(gomega.Succeed())
	return s
}

// Add starts clusters, with an agent in each that has joined nobody.
func (s *Set) Add(ctx context.Context, options controlplane.Options) {
	ginkgo.GinkgoHelper()
	options.Dir = filepath.Join(s.dir, "clusters")
	options.FirstNetwork = len(s.Members) + 1
	started, err := controlplane.Start(ctx, options)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(func() { gomega.Expect(controlplane.Close(started)).To(gomega.Succeed()) })
	free, err := ports.Free(install.PortsPerAgent * len(started))
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	var installed errgroup.Group
	for i, c := range started {
		m := &Member{
			Cluster: c, Client: suite.Client(c.RESTConfig()), set: s, dir: filepath.Join(s.dir, "agents", c.ID()),
			ports: free[i*install.PortsPerAgent : (i+1)*install.PortsPerAgent],
		}
		s.Members[c.ID()] = m
		installed.Go(func() error { return m.install(ctx) })
	}
	gomega.Expect(installed.Wait()).To(gomega.Succeed())
	for _, c := range started {
		m := s.Members[c.ID()]
		m.AwaitReady(ctx)
		stop := install.KeepRunning(func() error {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.Agent.Start()
		})
		ginkgo.DeferCleanup(func() {
			stop()
			gomega.Expect(m.Agent.Kill()).To(gomega.Succeed())
		})
	}
}

// Join joins each pair.
func (s *Set) Join(ctx context.Context, ids ...string) {
	ginkgo.GinkgoHelper()
	for i, a := range ids {
		for _, b := range ids[i+1:] {
			gomega.Expect(install.Join(ctx, nil, []join.Cluster{s.Members[a].side(), s.Members[b].side()}, join.Options{})).To(gomega.Succeed())
		}
	}
}

// Report tells what the agents wrote last, which says why a spec failed.
func (s *Set) Report() {
	for id, m := range s.Members {
		if m.Agent != nil {
			ginkgo.GinkgoWriter.Printf("\ncomity in %s:\n%s\n", id, m.Agent.LogTail(30))
		}
	}
}

// Reinstall installs Comity in m again and starts the agent. What is left of an earlier
// installation stays, but for its webhooks, which nobody would answer.
func (m *Member) Reinstall(ctx context.Context) {
	ginkgo.GinkgoHelper()
	for _, hooks := range []client.Object{&admissionv1.ValidatingWebhookConfiguration{}, &admissionv1.MutatingWebhookConfiguration{}} {
		gomega.Expect(m.Client.DeleteAllOf(ctx, hooks)).To(gomega.Succeed())
	}
	m.mu.Lock()
	err := m.Agent.Kill()
	if err == nil {
		err = m.install(ctx)
	}
	m.mu.Unlock()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	m.AwaitReady(ctx)
}

// Backup copies the store of m; what it returns restores the copy.
func (m *Member) Backup(ctx context.Context) (restore func(context.Context)) {
	ginkgo.GinkgoHelper()
	again, err := m.Cluster.Backup(ctx, ginkgo.GinkgoT().TempDir())
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	m.AwaitReady(ctx)
	return func(ctx context.Context) {
		ginkgo.GinkgoHelper()
		gomega.Expect(again(ctx)).To(gomega.Succeed())
	}
}

func (m *Member) install(ctx context.Context) error {
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return err
	}
	agent, err := install.Prepare(ctx, m.target(), m.set.binary, m.set.flags...)
	if err != nil {
		return fmt.Errorf("install Comity in %s: %w", m.ID(), err)
	}
	m.Agent = agent
	if err := m.Agent.Start(); err != nil {
		return err
	}
	return m.Agent.WaitReady(ctx, ready)
}

func (m *Member) target() install.Target {
	return install.Target{Cluster: m.Cluster, Set: clusterset, Kubectl: m.set.kubectl, Dir: m.dir, Ports: m.ports}
}

// Restart ends the agent in order and starts it with these flags beside the set's.
func (m *Member) Restart(ctx context.Context, flags ...string) {
	ginkgo.GinkgoHelper()
	m.mu.Lock()
	err := m.Agent.StopFor(slices.Concat(m.set.flags, flags)...)
	m.mu.Unlock()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	m.AwaitReady(ctx)
}

// KillAgent kills the agent, which is started again at once. Its Lease, which would last
// for seconds, is deleted.
func (m *Member) KillAgent(ctx context.Context) {
	ginkgo.GinkgoHelper()
	m.mu.Lock()
	err := m.Agent.Kill()
	m.mu.Unlock()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Expect(client.IgnoreNotFound(m.Client.Delete(ctx, leaderLease()))).To(gomega.Succeed())
}

func leaderLease() *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: "comity-leader"}}
}

// AwaitLeader waits until the agent of m leads. An agent that cannot read a peer leads
// seconds before it is ready.
func (m *Member) AwaitLeader(ctx context.Context) {
	ginkgo.GinkgoHelper()
	gomega.Eventually(ctx, func() (string, error) {
		lease := leaderLease()
		err := m.Client.Get(ctx, client.ObjectKeyFromObject(lease), lease)
		return ptr.Deref(lease.Spec.HolderIdentity, ""), err
	}).WithTimeout(ready).ShouldNot(gomega.BeEmpty())
}

// Without ends the agent in order, does something, and starts the agent again.
func (m *Member) Without(ctx context.Context, do func()) {
	ginkgo.GinkgoHelper()
	func() {
		m.mu.Lock() // so that nothing starts it meanwhile
		defer m.mu.Unlock()
		gomega.Expect(m.Agent.Stop()).To(gomega.Succeed())
		do()
		gomega.Expect(m.Agent.Start()).To(gomega.Succeed())
	}()
	m.AwaitReady(ctx)
}

// Replica starts a second agent in m, which waits to lead.
func (m *Member) Replica(ctx context.Context) *install.Agent {
	ginkgo.GinkgoHelper()
	second, err := install.Replica(m.target(), m.set.binary, m.set.flags...)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Expect(second.Start()).To(gomega.Succeed())
	ginkgo.DeferCleanup(second.Kill)
	gomega.Expect(second.WaitReady(ctx, ready)).To(gomega.Succeed())
	return second
}

// AwaitReady waits until the agent, started again if it has ended, is ready and
// judges exports.
func (m *Member) AwaitReady(ctx context.Context) {
	ginkgo.GinkgoHelper()
	gomega.Eventually(ctx, func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if err := m.Agent.WaitReady(ctx, time.Second); err != nil {
			return err
		}
		return m.Client.Create(ctx, Export("default", "probe"), client.DryRunAll)
	}).WithTimeout(ready).Should(gomega.Succeed())
}

// JoinReplaced joins a and b, of which either may be another cluster than the one that had
// its id before.
func JoinReplaced(ctx context.Context, a, b join.Cluster) {
	ginkgo.GinkgoHelper()
	gomega.Expect(install.Join(ctx, nil, []join.Cluster{a, b}, join.Options{Replace: true})).To(gomega.Succeed())
}

func (m *Member) side() join.Cluster { return m.As(model.ClusterID(m.ID())) }

// As is how m takes part in a join if its agent runs with this cluster id.
func (m *Member) As(id model.ClusterID) join.Cluster {
	return join.Cluster{
		ID: id, Set: clusterset, Namespace: install.Namespace, ServiceAccount: install.Account,
		RESTConfig: m.RESTConfig(), Server: m.PeerServer(), AcceptedCIDRs: clusters.AnyAddress(),
	}
}
