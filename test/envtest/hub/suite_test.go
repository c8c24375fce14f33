// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/config/crd"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/envtest/suite"
	"github.com/comity-mcs/comity/test/install"
)

// Bounds of every wait.
const (
	soon  = 45 * time.Second
	ready = 60 * time.Second
)

const clusterset = "test"

func TestHub(t *testing.T) {
	EnforceDefaultTimeoutsWhenUsingContexts()
	suite.Run(t, "hub", suite.Waits{Soon: soon, Poll: 50 * time.Millisecond})
}

// member is a cluster of the set, or the hub, which has no agent.
type member struct {
	*controlplane.Cluster
	client client.Client // an administrator's, without a cache
	agent  *install.Agent
	dir    string
}

var (
	ids     = []string{"a", "b", "c"}
	members = map[string]*member{}
	theHub  *member
	scheme  = suite.Scheme()
	// programs: what is tested, and what renders its manifests.
	binary, kubectl string
)

var _ = BeforeSuite(func(ctx SpecContext) {
	suite.LogToGinkgo()
	dir := GinkgoT().TempDir()
	binary = filepath.Join(dir, "comity")
	var err error
	kubectl, err = install.Kubectl(ctx)
	Expect(err).NotTo(HaveOccurred())
	var built errgroup.Group
	built.Go(func() error { return install.BuildForTests(ctx, binary) })
	start(dir)
	Expect(built.Wait()).To(Succeed())
	countQuotas(theHub.client)
	var installed errgroup.Group
	for _, m := range members {
		installed.Go(func() error { return m.install(ctx) })
	}
	Expect(installed.Wait()).To(Succeed())
	DeferCleanup(func() {
		for _, m := range members {
			Expect(m.agent.Kill()).To(Succeed())
		}
	})
	By("joining them, after the agents have started without any access to the hub")
	Expect(install.Join(ctx, hub(), sides(ids...), join.Options{})).To(Succeed())
	for _, id := range ids {
		members[id].mount(ctx)
	}
}, NodeTimeout(5*time.Minute))

// What the agents wrote tells why a spec failed.
var _ = ReportAfterEach(func(report SpecReport) {
	if !report.Failed() {
		return
	}
	for _, id := range ids {
		if m := members[id]; m != nil && m.agent != nil {
			GinkgoWriter.Printf("\ncomity in %s:\n%s\n", id, m.agent.LogTail(30))
		}
	}
})

// start starts members and hub. The hub knows the exchange's kinds and no other
// of ours, nor those of the MCS API.
func start(dir string) {
	GinkgoHelper()
	manifests, err := clusters.Files(crd.FS)
	Expect(err).NotTo(HaveOccurred())
	exchange := slices.DeleteFunc(manifests, func(m []byte) bool {
		return !strings.Contains(string(m), "group: exchange.comity.dev") || strings.Contains(string(m), "kind: Peer\n")
	})
	Expect(exchange).To(HaveLen(4))
	// One after the other, so that no port is chosen twice.
	all := startClusters(controlplane.Options{IDs: ids, Dir: filepath.Join(dir, "clusters"), APIServerOnly: true})
	hubs := startClusters(controlplane.Options{
		IDs: []string{"hub"}, FirstNetwork: len(ids) + 1, Dir: filepath.Join(dir, "hub"), APIServerOnly: true, WithoutMCS: true, Manifests: exchange,
	})
	for _, c := range append(all, hubs...) {
		m := newMember(c, dir)
		if c.ID() == "hub" {
			theHub = m
		} else {
			members[c.ID()] = m
		}
	}
}

// newMember keeps its files in a directory below dir.
func newMember(c *controlplane.Cluster, dir string) *member {
	GinkgoHelper()
	direct, err := client.New(c.RESTConfig(), client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return &member{Cluster: c, client: direct, dir: filepath.Join(dir, "agents", c.ID())}
}

func startClusters(options controlplane.Options) []*controlplane.Cluster {
	GinkgoHelper()
	started, err := controlplane.Start(context.Background(), options)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(controlplane.Close(started)).To(Succeed()) })
	return started
}

// exchangeFile is where the agent looks for its access to the hub.
func (m *member) exchangeFile() string { return filepath.Join(m.dir, "exchange") }

// install starts the agent with these flags beside those that all have.
func (m *member) install(ctx context.Context, flags ...string) error {
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return err
	}
	target := install.Target{Cluster: m.Cluster, Set: clusterset, Kubectl: kubectl, Dir: m.dir}
	var err error
	if m.agent, err = install.Prepare(ctx, target, binary, m.flags(flags...)...); err != nil {
		return err
	}
	if err := m.agent.Start(); err != nil {
		return err
	}
	return m.agent.WaitReady(ctx, ready)
}

// restart kills the agent and starts it again.
func (m *member) restart(ctx context.Context) {
	GinkgoHelper()
	Expect(m.agent.Kill()).To(Succeed())
	m.expireLease(ctx)
	Expect(m.agent.Start()).To(Succeed())
	Expect(m.agent.WaitReady(ctx, ready)).To(Succeed())
}

// expireLease does what seconds do for the lease of an agent that was killed.
func (m *member) expireLease(ctx context.Context) {
	GinkgoHelper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: "comity-leader"}}
	Expect(client.IgnoreNotFound(m.client.Delete(ctx, lease))).To(Succeed())
}

func (m *member) flags(more ...string) []string {
	return append([]string{"--exchange-kubeconfig", m.exchangeFile(), "--heartbeat-interval=1s"}, more...)
}

// mount does what the kubelet does with the Secret: the file changes at once.
func (m *member) mount(ctx context.Context) {
	GinkgoHelper()
	m.put(m.exchangeSecret(ctx).Data[join.KubeconfigKey])
}

// put replaces the file with the access to the hub.
func (m *member) put(kubeconfig []byte) {
	GinkgoHelper()
	next := m.exchangeFile() + ".next"
	Expect(os.WriteFile(next, kubeconfig, 0o600)).To(Succeed())
	Expect(os.Rename(next, m.exchangeFile())).To(Succeed())
}

func (m *member) exchangeSecret(ctx context.Context) *corev1.Secret {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Expect(m.client.Get(ctx, client.ObjectKey{Namespace: install.Namespace, Name: model.ExchangeSecret}, secret)).To(Succeed())
	return secret
}

// inHub is a client that has what m's credential allows in the hub.
func (m *member) inHub(ctx context.Context) client.Client {
	GinkgoHelper()
	config, err := clientcmd.RESTConfigFromKubeConfig(m.exchangeSecret(ctx).Data[join.KubeconfigKey])
	Expect(err).NotTo(HaveOccurred())
	c, err := client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return c
}

func hub() *join.Cluster { return &join.Cluster{RESTConfig: theHub.RESTConfig()} }

// side is how a member takes part in a join.
func side(id string) join.Cluster { return members[id].as(model.ClusterID(id)) }

// as is how m takes part in a join if its agent runs with this cluster id.
func (m *member) as(id model.ClusterID) join.Cluster {
	return join.Cluster{
		ID: id, Set: clusterset, Namespace: install.Namespace, ServiceAccount: install.Account,
		RESTConfig: m.RESTConfig(), PodCIDRs: m.Network().PodCIDRs,
	}
}

func sides(ids ...string) []join.Cluster {
	var out []join.Cluster
	for _, id := range ids {
		out = append(out, side(id))
	}
	return out
}

// spoil puts a kubeconfig into the file that would run a program.
func (m *member) spoil() {
	GinkgoHelper()
	text := `apiVersion: v1
kind: Config
clusters: [{name: hub, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: hub, context: {cluster: hub, user: hub}}]
users: [{name: hub, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, interactiveMode: Never}}}]
`
	Expect(os.WriteFile(m.exchangeFile(), []byte(text), 0o600)).To(Succeed())
}
