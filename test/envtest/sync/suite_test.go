// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/envtest/suite"
)

// Bounds of every wait.
const (
	soon    = 20 * time.Second
	settled = time.Second // how long nothing may happen
)

func TestSync(t *testing.T) {
	suite.Run(t, "sync", suite.Waits{Soon: soon, Quiet: settled, Poll: 100 * time.Millisecond})
}

var scheme = suite.Scheme()

// cluster is one real API server, with an agent that can be stopped and started.
type cluster struct {
	id     model.ClusterID
	config *rest.Config
	client client.Client // an administrator's, without a cache
	agent  *agent
	// admitter outlives the agent, as ExportPolicies do.
	admitter admitter
	// imports are the import policies, which outlive it as well.
	imports []engine.Policy
	proxy   *proxy // through which the peers reach it
}

var clusters = map[model.ClusterID]*cluster{}

var ids = []model.ClusterID{"a", "b", "c"}

var _ = BeforeSuite(func() {
	suite.LogToGinkgo()
	for i, config := range suite.Start(apiServer(), apiServer(), apiServer()) {
		id := ids[i]
		clusters[id] = &cluster{id: id, config: config, client: suite.Client(config), proxy: newProxy(hostPort(config.Host))}
	}
	for _, c := range clusters {
		c.prepare()
	}
	for _, c := range clusters {
		c.start()
		DeferCleanup(c.stop)
	}
	for _, c := range clusters {
		c.awaitPeers()
	}
})

// A spec that failed between stop and start would have all that follow it fail. One that did
// not fail leaves that to its own cleanup: an agent removes what a spec published for it.
var _ = AfterEach(func() {
	for _, c := range clusters {
		if c.agent == nil && CurrentSpecReport().Failed() {
			c.start()
			c.awaitPeers()
		}
	}
})

// apiServer has more addresses of Services than the 256 that are envtest's default.
func apiServer() *envtest.Environment {
	GinkgoHelper()
	server := suite.APIServer()
	server.ControlPlane.GetAPIServer().Configure().Set("service-cluster-ip-range", "10.0.0.0/16")
	return server
}

// prepare makes what joining clusters makes, in the simplest form: namespaces,
// and Peers with an administrator's credentials.
func (c *cluster) prepare() {
	GinkgoHelper()
	c.create(namespaced("comity-system", nil), namespaced(model.ExchangeNamespace(c.id), map[string]string{model.LabelExchangeFrom: string(c.id)}))
	for _, other := range ids {
		if other == c.id {
			continue
		}
		c.create(
			namespaced(model.ScopedExchangeNamespace(c.id, other), map[string]string{model.LabelExchangeFrom: string(c.id), model.LabelExchangeTo: string(other)}),
		)
		c.create(peer(other, clusters[other].uid(), kubeconfig(clusters[other]))...)
	}
}

func (c *cluster) create(objects ...client.Object) {
	GinkgoHelper()
	for _, o := range objects {
		Expect(c.client.Create(ctx(), o)).To(Succeed(), "create %T %s in cluster %s", o, o.GetName(), c.id)
	}
}

func (c *cluster) delete(objects ...client.Object) {
	GinkgoHelper()
	for _, o := range objects {
		Expect(c.client.Delete(ctx(), o)).To(Succeed(), "delete %T %s in cluster %s", o, o.GetName(), c.id)
	}
}

// awaitPeers waits until everything that the other members share was read.
func (c *cluster) awaitPeers() {
	GinkgoHelper()
	Eventually(func() []model.Member { return c.agent.peers.Members() }).Should(
		And(HaveLen(len(ids)-1), HaveEach(HaveField("Synced", true))), "members as %s sees them", c.id)
}

func ctx() context.Context { return context.Background() }

func namespaced(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}
