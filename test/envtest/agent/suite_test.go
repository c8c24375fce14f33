// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/envtest/suite"
	"github.com/comity-mcs/comity/test/install"
)

// Bounds of every wait.
const (
	soon  = 30 * time.Second
	ready = 60 * time.Second // three agents that start at once on two cores
)

// clusterset is the name of the set.
const clusterset = "test"

func TestAgent(t *testing.T) {
	suite.Run(t, "agent", suite.Waits{Soon: soon, Poll: 50 * time.Millisecond})
}

// member is one cluster of the set and its agent.
type member struct {
	*controlplane.Cluster
	client client.Client // an administrator's, without a cache
	agent  *install.Agent
	dir    string
}

var (
	ids     = []string{"a", "b", "c"}
	members = map[string]*member{}
	scheme  = suite.Scheme()
	// programs: what is tested, and what renders its manifests.
	binary, kubectl string
	// podOfC limits the memory of the agent of c and its processes, as their Pod would. It is nil
	// where there can be no such group, for the reason noGroup.
	podOfC  *memoryGroup
	noGroup error
)

var _ = BeforeSuite(func(ctx SpecContext) {
	suite.LogToGinkgo()
	dir := GinkgoT().TempDir()
	var err error
	kubectl, err = install.Kubectl(ctx)
	Expect(err).NotTo(HaveOccurred())
	var built errgroup.Group
	binary = filepath.Join(dir, "comity")
	built.Go(func() error { return install.BuildForTests(ctx, binary) })
	for _, m := range startClusters(controlplane.Options{IDs: ids, Dir: filepath.Join(dir, "clusters"), APIServerOnly: true}) {
		members[m.ID()] = m
	}
	Expect(built.Wait()).To(Succeed())
	if podOfC, noGroup = newMemoryGroup(podMemory); noGroup == nil {
		DeferCleanup(podOfC.remove)
	}
	var installed errgroup.Group
	for _, m := range members {
		m.dir = filepath.Join(dir, "agents", m.ID())
		installed.Go(func() error { return m.install(ctx) })
	}
	Expect(installed.Wait()).To(Succeed())
	DeferCleanup(func() {
		for _, m := range members {
			Expect(m.agent.Kill()).To(Succeed())
		}
	})
	Expect(install.Join(ctx, nil, []join.Cluster{side(members["a"]), side(members["b"]), side(members["c"])}, join.Options{})).To(Succeed())
	keepHealthyExports(ctx)
	awaitConverged(ids...)
}, NodeTimeout(5*time.Minute))

// What the agents wrote tells why a spec failed.
var _ = ReportAfterEach(func(report SpecReport) {
	if !report.Failed() {
		return
	}
	for _, id := range ids {
		if m := members[id]; m != nil && m.agent != nil {
			GinkgoWriter.Printf("\ncomity in %s:\n%s\n", id, m.agent.LogTail(20))
		}
	}
})

func startClusters(options controlplane.Options) []*member {
	GinkgoHelper()
	started, err := controlplane.Start(context.Background(), options)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(controlplane.Close(started)).To(Succeed()) })
	out := make([]*member, len(started))
	for i, c := range started {
		direct, err := client.New(c.RESTConfig(), client.Options{Scheme: scheme})
		Expect(err).NotTo(HaveOccurred())
		out[i] = &member{Cluster: c, client: direct}
	}
	return out
}

// install installs the agent of m and waits until it is ready.
func (m *member) install(ctx context.Context) error {
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return err
	}
	program, err := m.program()
	if err != nil {
		return err
	}
	if m.agent, err = install.Prepare(ctx, m.target(), program); err != nil {
		return err
	}
	if err := m.agent.Start(); err != nil {
		return err
	}
	return m.agent.WaitReady(ctx, ready)
}

// program is what runs as the agent of m.
func (m *member) program() (string, error) {
	if m != members["c"] || podOfC == nil {
		return binary, nil
	}
	return podOfC.program(m.dir, binary)
}

func (m *member) target() install.Target {
	return install.Target{Cluster: m.Cluster, Set: clusterset, Kubectl: kubectl, Dir: m.dir, AdmissionPolicies: true}
}

// side is how a member takes part in a join.
func side(m *member) join.Cluster {
	return join.Cluster{
		ID: model.ClusterID(m.ID()), Set: clusterset, Namespace: install.Namespace, ServiceAccount: install.Account,
		RESTConfig: m.RESTConfig(), Server: m.PeerServer(), AcceptedCIDRs: clusters.AnyAddress(),
	}
}

// others are the members but for one.
func others(id string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(other string) bool { return other == id })
}

// create creates objects as an administrator.
func (m *member) create(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, o := range objects {
		Expect(suite.Evaluated(func() error { return m.client.Create(ctx, o) })).To(Succeed(), "create %T %s in cluster %s", o, o.GetName(), m.ID())
	}
}

// remove deletes objects as an administrator; what is gone is no error.
func (m *member) remove(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, o := range objects {
		Expect(client.IgnoreNotFound(m.client.Delete(ctx, o))).To(Succeed(), "delete %T %s in cluster %s", o, o.GetName(), m.ID())
	}
}

func newNamespace(ctx context.Context, prefix string) string {
	GinkgoHelper()
	name := prefix + "-" + fmt.Sprint(number.Add(1))
	for _, m := range members {
		m.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return name
}
