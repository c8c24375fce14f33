// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"net/netip"
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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/envtest/suite"
	"github.com/comity-mcs/comity/test/install"
)

// Bounds of every wait.
const (
	soon  = 20 * time.Second
	ready = 90 * time.Second
	// quiet is how long nothing must happen before a state counts as final.
	quiet = time.Second
)

const clusterset = "test"

func TestHostile(t *testing.T) {
	EnforceDefaultTimeoutsWhenUsingContexts()
	suite.Run(t, "hostile", suite.Waits{Soon: soon, Poll: 50 * time.Millisecond})
}

// member is one cluster; agent is nil for the attacker, who runs none.
type member struct {
	*controlplane.Cluster
	client client.Client // an administrator's, without a cache
	agent  *install.Agent
}

var (
	victim, attacker, neighbor *member
	// attackerUID is that of b's Namespace kube-system, which a's Peer names.
	attackerUID types.UID
	// store is how the attacker writes.
	store *controlplane.Store
)

var _ = BeforeSuite(func(ctx SpecContext) {
	suite.LogToGinkgo()
	dir := GinkgoT().TempDir()
	binary := filepath.Join(dir, "comity")
	Expect(install.BuildForTests(ctx, binary)).To(Succeed())
	kubectl, err := install.Kubectl(ctx)
	Expect(err).NotTo(HaveOccurred())
	started, err := controlplane.Start(ctx, controlplane.Options{IDs: []string{"a", "b", "c"}, Dir: filepath.Join(dir, "clusters"), APIServerOnly: true})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(controlplane.Close(started)).To(Succeed()) })
	victim, attacker, neighbor = newMember(started[0]), newMember(started[1]), newMember(started[2])
	all := []*member{victim, attacker, neighbor}
	var installed errgroup.Group
	for _, m := range all {
		m.addNode(ctx)
		installed.Go(func() error { return m.prepare(ctx, binary, kubectl, filepath.Join(dir, "agents", m.ID())) })
	}
	Expect(installed.Wait()).To(Succeed())
	for _, other := range all[1:] {
		Expect(install.Join(ctx, nil, []join.Cluster{side(victim), side(other)}, join.Options{})).To(Succeed())
	}
	system := &corev1.Namespace{}
	Expect(attacker.client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system)).To(Succeed())
	attackerUID = system.UID
	store, err = attacker.Store()
	Expect(err).NotTo(HaveOccurred())
	impersonate(ctx)
	for _, m := range []*member{victim, neighbor} {
		Expect(m.agent.Start()).To(Succeed())
		DeferCleanup(m.agent.Kill)
	}
	for _, m := range []*member{victim, neighbor} {
		Expect(m.agent.WaitReady(ctx, ready)).To(Succeed())
	}
	keepHonestExports(ctx)
}, NodeTimeout(5*time.Minute))

var _ = ReportAfterEach(func(report SpecReport) {
	if report.Failed() && victim != nil && victim.agent != nil {
		GinkgoWriter.Printf("\ncomity in a:\n%s\n", victim.agent.LogTail(40))
	}
})

func newMember(c *controlplane.Cluster) *member {
	GinkgoHelper()
	direct := suite.Client(c.RESTConfig())
	return &member{Cluster: c, client: direct}
}

// addNode says what the pod CIDR of m is, as nodes do.
func (m *member) addNode(ctx context.Context) {
	GinkgoHelper()
	cidr := m.Network().PodCIDRs[0].String()
	m.create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: m.ID() + "-1", Labels: map[string]string{corev1.LabelTopologyZone: m.ID() + "-zone"}},
		Spec:       corev1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}},
	})
}

func (m *member) prepare(ctx context.Context, binary, kubectl, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var err error
	m.agent, err = install.Prepare(ctx, install.Target{Cluster: m.Cluster, Set: clusterset, Kubectl: kubectl, Dir: dir}, binary)
	return err
}

// side is how a member takes part in a join. Of each other only its pods are accepted.
func side(m *member) join.Cluster {
	return join.Cluster{
		ID: model.ClusterID(m.ID()), Set: clusterset, Namespace: install.Namespace, ServiceAccount: install.Account,
		RESTConfig: m.RESTConfig(), Server: m.PeerServer(), AcceptedCIDRs: everyPod(),
	}
}

// everyPod is what each accepts from the others.
func everyPod() []netip.Prefix {
	return slices.Concat(victim.Network().PodCIDRs, attacker.Network().PodCIDRs, neighbor.Network().PodCIDRs)
}

// create creates objects as an administrator.
func (m *member) create(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, o := range objects {
		Expect(suite.Evaluated(func() error { return m.client.Create(ctx, o) })).To(Succeed(), "create %T %s in cluster %s", o, o.GetName(), m.ID())
	}
}

// address is the i-th of m's pods.
func (m *member) address(i int) string {
	ip := m.Network().PodCIDRs[0].Addr().As4()
	return fmt.Sprintf("%d.%d.%d.%d", ip[0], ip[1], i/250, i%250+1)
}
