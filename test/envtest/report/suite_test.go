// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
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
	soon    = 30 * time.Second
	settled = 1500 * time.Millisecond // how long nothing may happen
)

const (
	system     = "comity-system"
	clusterset = "test"
	// account is who the agents are to the API servers.
	account = "system:serviceaccount:" + system + ":comity"
)

func TestReport(t *testing.T) {
	suite.Run(t, "report", suite.Waits{Soon: soon, Quiet: settled, Poll: 100 * time.Millisecond})
}

var (
	scheme = suite.Scheme()
	a, b   *cluster
)

// cluster is one real API server, with an agent that can be stopped and started.
type cluster struct {
	*controlplane.Cluster
	id     model.ClusterID
	client client.Client // an administrator's, without a cache
	rights *rest.Config  // the agent's
	agent  *agent
}

var _ = BeforeSuite(func(ctx SpecContext) {
	suite.LogToGinkgo()
	dir := GinkgoT().TempDir()
	started, err := controlplane.Start(ctx, controlplane.Options{
		IDs: []string{"a", "b"}, Dir: dir, APIServerOnly: true, Manifests: manifests(),
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(controlplane.Close(started)).To(Succeed()) })
	a, b = newCluster(started[0]), newCluster(started[1])
	Expect(install.Join(ctx, nil, []join.Cluster{side(a), side(b)}, join.Options{})).To(Succeed())
	for _, c := range []*cluster{a, b} {
		path := filepath.Join(dir, c.ID()+".kubeconfig")
		Expect(clusters.ServiceAccountKubeconfig(ctx, c, system, "comity", path)).To(Succeed())
		c.rights, err = clusters.LoadKubeconfig(path)
		Expect(err).NotTo(HaveOccurred())
		c.start(true)
		DeferCleanup(c.stop)
	}
	a.awaitPeer()
	b.awaitPeer()
}, NodeTimeout(3*time.Minute))

// manifests are what is installed of Comity: its kinds, its namespace and its rights.
func manifests() [][]byte {
	GinkgoHelper()
	out, err := clusters.Files(crd.FS)
	Expect(err).NotTo(HaveOccurred())
	config := os.DirFS(filepath.Join("..", "..", "..", "config"))
	for _, name := range []string{
		"agent/namespace.yaml", "rbac/serviceaccount.yaml", "rbac/clusterrole.yaml", "rbac/clusterrolebinding.yaml", "rbac/role.yaml", "rbac/rolebinding.yaml",
	} {
		text, err := fs.ReadFile(config, name)
		Expect(err).NotTo(HaveOccurred())
		out = append(out, text)
	}
	return out
}

func newCluster(c *controlplane.Cluster) *cluster {
	GinkgoHelper()
	direct := suite.Client(c.RESTConfig())
	out := &cluster{Cluster: c, id: model.ClusterID(c.ID()), client: direct}
	out.create(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: c.ID() + "-1", Labels: map[string]string{corev1.LabelTopologyZone: c.ID() + "-zone"}},
		Spec:       corev1.NodeSpec{PodCIDRs: []string{c.Network().PodCIDRs[0].String()}, PodCIDR: c.Network().PodCIDRs[0].String()},
	})
	return out
}

func side(c *cluster) join.Cluster {
	return join.Cluster{ID: c.id, Set: clusterset, RESTConfig: c.RESTConfig(), Server: c.PeerServer(), AcceptedCIDRs: clusters.AnyAddress()}
}

func ctx() context.Context { return context.Background() }

func (c *cluster) create(objects ...client.Object) {
	GinkgoHelper()
	for _, o := range objects {
		Expect(c.client.Create(ctx(), o)).To(Succeed(), "create %T %s in cluster %s", o, o.GetName(), c.ID())
	}
}

func (c *cluster) delete(objects ...client.Object) {
	GinkgoHelper()
	for _, o := range objects {
		Expect(client.IgnoreNotFound(c.client.Delete(ctx(), o))).To(Succeed(), "delete %T %s in cluster %s", o, o.GetName(), c.ID())
	}
}

// awaitPeer waits until everything that the other member shares was read.
func (c *cluster) awaitPeer() {
	GinkgoHelper()
	Eventually(func() []model.Member { return c.agent.peers.Members() }).Should(
		And(HaveLen(1), HaveEach(HaveField("Synced", true))), "members as %s sees them", c.ID())
}
