// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Bounds of every wait.
const (
	soon    = 20 * time.Second
	settled = 1500 * time.Millisecond // how long nothing may happen
)

func TestSync(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Fatal("KUBEBUILDER_ASSETS is not set; it must name the directory with etcd, kube-apiserver and kubectl (make test sets it)")
	}
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(soon)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	SetDefaultConsistentlyDuration(settled)
	SetDefaultConsistentlyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "sync")
}

var scheme = runtime.NewScheme()

// cluster is one real API server, with an agent that can be stopped and started.
type cluster struct {
	id     model.ClusterID
	config *rest.Config
	client client.Client // an administrator's, without a cache
	agent  *agent
	// admitter outlives the agent, as ExportPolicies do.
	admitter admitter
	proxy    *proxy // through which the peers reach it
}

var clusters = map[model.ClusterID]*cluster{}

var ids = []model.ClusterID{"a", "b", "c"}

var _ = BeforeSuite(func() {
	log.SetLogger(zap.New(zap.WriteTo(GinkgoWriter), zap.UseDevMode(true)))
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, mcsv1alpha1.Install, mcsv1beta1.Install, exchangev1alpha1.AddToScheme,
	} {
		Expect(add(scheme)).To(Succeed())
	}
	mcs := GinkgoT().TempDir()
	Expect(os.WriteFile(filepath.Join(mcs, "exports.yaml"), mcscrd.ServiceExportCRD, 0o600)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(mcs, "imports.yaml"), mcscrd.ServiceImportCRD, 0o600)).To(Succeed())

	configs, errs := make([]*rest.Config, len(ids)), make([]error, len(ids))
	var started sync.WaitGroup
	for i := range ids {
		env := &envtest.Environment{
			CRDDirectoryPaths:     []string{filepath.Join("..", "..", "..", "config", "crd"), mcs},
			ErrorIfCRDPathMissing: true,
		}
		DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
		started.Go(func() { configs[i], errs[i] = env.Start() })
	}
	started.Wait()
	for i, id := range ids {
		Expect(errs[i]).NotTo(HaveOccurred(), "start cluster %s", id)
		configs[i].QPS = -1
		c, err := client.New(configs[i], client.Options{Scheme: scheme})
		Expect(err).NotTo(HaveOccurred())
		clusters[id] = &cluster{id: id, config: configs[i], client: c, proxy: newProxy(hostPort(configs[i].Host))}
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

// prepare makes what joining clusters makes, in the simplest form: namespaces,
// and peer Secrets with an administrator's credentials.
func (c *cluster) prepare() {
	GinkgoHelper()
	c.create(namespaced("comity-system", nil), namespaced(model.ExchangeNamespace(c.id), map[string]string{model.LabelExchangeFrom: string(c.id)}))
	for _, peer := range ids {
		if peer == c.id {
			continue
		}
		c.create(
			namespaced(model.ScopedExchangeNamespace(c.id, peer), map[string]string{model.LabelExchangeFrom: string(c.id), model.LabelExchangeTo: string(peer)}),
			peerSecret("peer-"+string(peer), string(peer), kubeconfig(clusters[peer])),
		)
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
