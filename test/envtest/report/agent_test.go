// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/compactslice"
	"github.com/comity-mcs/comity/sync/controllers"
	"github.com/comity-mcs/comity/sync/localcluster"
	"github.com/comity-mcs/comity/sync/members"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
)

// beat is how often the Lease is renewed here.
const beat = 500 * time.Millisecond

// agent is what runs in a cluster: home, peers, loop and reports, as the program wires them.
type agent struct {
	home    *localcluster.Watcher
	peers   *members.Set
	running *controllers.Controllers
	changed *keys
	end     func()
}

// keys are those that Changed was called with.
type keys struct {
	mu   sync.Mutex
	seen map[types.NamespacedName]int
}

func (k *keys) add(key types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seen[key]++
}

type everyone struct{}

func (everyone) Admit(context.Context, *mcsv1beta1.ServiceExport) decision.Verdict {
	return decision.Verdict{Outcome: decision.Allowed}
}

func (everyone) Forget(types.NamespacedName) {}

// start runs a new agent; stop ends it. Both may be called again and again.
func (c *cluster) start(imports bool) {
	GinkgoHelper()
	registry := prometheus.NewRegistry()
	mgr, err := ctrl.NewManager(c.rights, ctrl.Options{
		Scheme: scheme,
		Logger: ctrl.Log.WithName(c.ID()),
		Cache: cache.Options{
			DefaultTransform: compactslice.Shrink,
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Secret{}: {Namespaces: map[string]cache.Config{system: {}}},
				&corev1.Node{}:   {Transform: localcluster.TrimNode},
			},
		},
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)}, // two agents in one process
	})
	Expect(err).NotTo(HaveOccurred())
	n := &agent{changed: &keys{seen: map[types.NamespacedName]int{}}}
	n.home, err = localcluster.SetupWithManager(mgr, model.LocalCluster{})
	Expect(err).NotTo(HaveOccurred())
	n.peers = members.New(members.Options{
		Self: c.id, ClusterUID: c.uid(), ClusterSet: clusterset, Namespace: system, Registry: registry,
		Recorder: mgr.GetEventRecorder("comity"), Log: ctrl.Log.WithName(c.ID()).WithName("peer"),
		LostAfter: 15 * time.Second, StatusInterval: 5 * time.Second, LocalCluster: n.home.Get,
	})
	Expect(n.peers.SetupWithManager(mgr)).To(Succeed())
	n.running, err = controllers.SetupWithManager(mgr, controllers.Options{
		Self: c.id, ClusterUID: c.uid(), HeartbeatInterval: beat, ClusterSet: clusterset, Namespace: system, Version: "test", Peers: n.peers, Admitter: everyone{}, Registry: registry,
		LocalCluster: n.home.Get, LocalClusterChanged: &notify.Notifier{}, LocalClusterKnown: n.home.Known(), PoliciesChanged: &notify.Notifier{}, ImportDisabled: !imports,
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(n.peers.SetupStatusWithManager(mgr, n.running)).To(Succeed())
	n.running.DestinationsChanged().Subscribe(func(c notify.Change) { n.changed.add(c.Key) })
	c.run(n, mgr)
}

func (c *cluster) run(n *agent, mgr ctrl.Manager) {
	running, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		defer GinkgoRecover()
		Expect(mgr.Start(running)).To(Succeed(), "the agent of cluster %s", c.ID())
	})
	n.end = func() { cancel(); ended.Wait() }
	c.agent = n
}

func (c *cluster) stop() {
	if c.agent != nil {
		c.agent.end()
		c.agent = nil
	}
}

// uid is what no other cluster has.
func (c *cluster) uid() types.UID {
	GinkgoHelper()
	namespace := &corev1.Namespace{}
	Expect(c.client.Get(ctx(), types.NamespacedName{Name: "kube-system"}, namespace)).To(Succeed())
	return namespace.UID
}
