// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/findings"
	"github.com/comity-mcs/comity/status"
	"github.com/comity-mcs/comity/sync/compactslice"
	"github.com/comity-mcs/comity/sync/controllers"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/members"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
)

// Times, shortened from 10 s.
const (
	retry     = time.Second
	heartbeat = 2 * time.Second
)

// agent is what runs in a cluster: the members and the controllers, as the program wires them.
type agent struct {
	peers    *members.Set
	running  *controllers.Controllers
	admitter *admitter
	writer   *writer
	engine   *engine.Engine // of the import policies
	policies *notify.Notifier
	end      func()
}

// start runs a new agent; stop ends it. Both may be called again and again.
func (c *cluster) start() {
	GinkgoHelper()
	w := &writer{}
	registry := prometheus.NewRegistry()
	mgr, err := ctrl.NewManager(c.config, ctrl.Options{
		Scheme: scheme,
		Logger: ctrl.Log.WithName(string(c.id)),
		Cache: cache.Options{
			DefaultTransform: compactslice.Shrink,
			ByObject:         map[client.Object]cache.ByObject{&corev1.Secret{}: {Namespaces: map[string]cache.Config{"comity-system": {}}}},
		},
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)}, // several agents in one process
	})
	Expect(err).NotTo(HaveOccurred())
	w.Client = mgr.GetClient()
	a := &agent{admitter: &c.admitter, writer: w, policies: &notify.Notifier{}, engine: engine.New(engine.Options{})}
	a.engine.Load(c.imports)
	a.peers = members.New(members.Options{
		Self: c.id, ClusterUID: c.uid(), ClusterSet: "prod", Namespace: "comity-system", Registry: registry,
		LostAfter:      time.Hour, // specs stop agents
		LocalCluster:   func() model.LocalCluster { return model.LocalCluster{} },
		StatusInterval: settled / 3,
		Recorder:       mgr.GetEventRecorder("comity"), Log: ctrl.Log.WithName(string(c.id)).WithName("peer"),
	})
	Expect(a.peers.SetupWithManager(mgr)).To(Succeed())
	a.running, err = controllers.SetupWithManager(mgr, controllers.Options{
		Self: c.id, ClusterUID: c.uid(), ClusterSet: "prod", Namespace: "comity-system", Version: "test",
		Peers: a.peers, Admitter: a.admitter, ImportAdmitter: &controllers.PolicyCache{
			EvaluateImport: a.engine.EvaluateImport, HasImportPolicies: a.engine.HasImportPolicies, Policies: a.engine.Digest, Findings: findings.New(),
		},
		LocalCluster: func() model.LocalCluster { return model.LocalCluster{} }, LocalClusterChanged: &notify.Notifier{},
		PoliciesChanged: a.policies, Registry: registry, Writer: w, Clock: shifted{}, Retry: retry, HeartbeatInterval: heartbeat,
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(a.peers.SetupStatusWithManager(mgr, a.running)).To(Succeed())
	Expect(status.SetupWithManager(mgr, status.Options{
		Observations: a.running, Verdicts: a.admitter, PoliciesChanged: a.policies, Now: shifted{}.Now, Interval: settled / 3,
	})).To(Succeed())

	running, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		defer GinkgoRecover()
		Expect(mgr.Start(running)).To(Succeed(), "the agent of cluster %s", c.id)
	})
	a.end = func() { cancel(); ended.Wait() }
	c.agent = a
}

func (c *cluster) stop() {
	if c.agent != nil {
		c.agent.end()
		c.agent = nil
	}
}

// shifted is the clock of all agents; ahead is by how much it is ahead.
type shifted struct{ clock.RealClock }

var ahead atomic.Int64

func (shifted) Now() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }

// pass lets a time pass for all agents, until the spec ends: they decide everything again.
func pass(d time.Duration) {
	ahead.Add(int64(d))
	DeferCleanup(func() { ahead.Add(-int64(d)) })
	for _, c := range clusters {
		if c.agent != nil {
			c.agent.policies.All()
		}
	}
}

// uid is that of the kube-system Namespace.
func (c *cluster) uid() types.UID {
	GinkgoHelper()
	namespace := &corev1.Namespace{}
	Expect(c.client.Get(context.Background(), types.NamespacedName{Name: metav1.NamespaceSystem}, namespace)).To(Succeed())
	return namespace.UID
}

// admitter answers as told, Allowed unless told otherwise.
type admitter struct {
	mu      sync.Mutex
	answers map[types.NamespacedName]decision.Verdict
}

func (a *admitter) Admit(_ context.Context, export *mcsv1beta1.ServiceExport) decision.Verdict {
	a.mu.Lock()
	defer a.mu.Unlock()
	if verdict, told := a.answers[client.ObjectKeyFromObject(export)]; told {
		return verdict
	}
	return decision.Verdict{Outcome: decision.Allowed}
}

// Forget does nothing: a test's answers stay.
func (a *admitter) Forget(types.NamespacedName) {}

// rule makes the policies of a cluster answer differently from now on.
func (a *agent) rule(key types.NamespacedName, verdict decision.Verdict) {
	a.admitter.mu.Lock()
	if a.admitter.answers == nil {
		a.admitter.answers = map[types.NamespacedName]decision.Verdict{}
	}
	a.admitter.answers[key] = verdict
	a.admitter.mu.Unlock()
	a.policies.All()
}

// writer counts the agent's writes.
type writer struct {
	client.Client
	count atomic.Int64
	mu    sync.Mutex
	names []string // what was written, for the reader of a failure
}

func (w *writer) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	w.note("apply", o)
	w.count.Add(1)
	return w.Client.Patch(ctx, o, p, opts...)
}

func (w *writer) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	w.note("delete", o)
	w.count.Add(1)
	return w.Client.Delete(ctx, o, opts...)
}

func (w *writer) note(verb string, o client.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names = append(w.names, fmt.Sprintf("%s %T %s/%s", verb, o, o.GetNamespace(), o.GetName()))
}

func (w *writer) written() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.names)
}

// kubeconfig is an administrator's, all inline.
func kubeconfig(of *cluster, change ...func(*clientcmdapi.Config)) []byte {
	GinkgoHelper()
	config := of.config
	out := clientcmdapi.NewConfig()
	out.Clusters["peer"] = &clientcmdapi.Cluster{Server: "https://" + of.proxy.address(), CertificateAuthorityData: config.CAData}
	out.AuthInfos["peer"] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken}
	out.Contexts["peer"] = &clientcmdapi.Context{Cluster: "peer", AuthInfo: "peer"}
	out.CurrentContext = "peer"
	for _, c := range change {
		c(out)
	}
	data, err := clientcmd.Write(*out)
	Expect(err).NotTo(HaveOccurred())
	return data
}

func hostPort(server string) string {
	return strings.TrimSuffix(strings.TrimPrefix(server, "https://"), "/")
}

// peer is the Peer of another cluster with its Secret. change makes it another.
func peer(id model.ClusterID, uid types.UID, data []byte, change ...func(*exchangev1alpha1.Peer)) []client.Object {
	p := &exchangev1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: string(id)},
		Spec: exchangev1alpha1.PeerSpec{
			ClusterSet: "prod", ClusterUID: uid, KubeconfigSecret: "peer-" + string(id),
			AcceptedCIDRs: []string{"0.0.0.0/0", "::/0"}, // the suite invents the addresses of its endpoints
		},
	}
	for _, c := range change {
		c(p)
	}
	return []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "comity-system", Name: p.Spec.KubeconfigSecret}, Data: map[string][]byte{"kubeconfig": data}}, p,
	}
}
