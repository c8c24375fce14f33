// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2/toxics"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/members"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/envtest/suite"
)

// Times, shortened from 15 s.
const (
	lostAfter = 3 * time.Second
	heartbeat = 500 * time.Millisecond
	// statusInterval is shortened from 5 s.
	statusInterval = 500 * time.Millisecond
	soon           = 60 * time.Second // bounds every wait
)

func TestPeer(t *testing.T) {
	toxics.Register("mute", new(mute))
	suite.Run(t, "peer", suite.Waits{Soon: soon, Quiet: time.Second, Poll: 50 * time.Millisecond})
}

var (
	scheme = suite.Scheme()
	// here is the API server of cluster a; that of its peers too, to save theirs.
	here     server
	peers    *members.Set
	registry *prometheus.Registry
	toB      *network
)

// server is a real API server.
type server struct {
	config *rest.Config
	client client.Client // an administrator's, without a cache
}

// address is where it listens.
func (s *server) address() string {
	return strings.TrimSuffix(strings.TrimPrefix(s.config.Host, "https://"), "/")
}

var _ = BeforeSuite(func() {
	suite.LogToGinkgo()
	config := suite.Start(suite.APIServer())[0]
	here = server{config: config, client: suite.Client(config)}
	here.create(namespaced("comity-system"))
	here.publish("b", "uid-b")
	here.publish("c", "uid-c")
	toB = newNetwork("b", here.address())
	here.create(peerSecret("peer-b", kubeconfig(toB.address())), peerSecret("peer-c", kubeconfig(here.address())), peer("b"), peer("c"))
	peers, registry = startAgent()
	Eventually(peers.Members).Should(And(HaveLen(2), HaveEach(HaveField("Synced", true))))
})

// startAgent runs the part of an agent of cluster a that reads the peers.
func startAgent() (*members.Set, *prometheus.Registry) {
	GinkgoHelper()
	config := rest.CopyConfig(here.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet && strings.HasSuffix(r.URL.Path, "/status") {
				statusWrites.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: controllerconfig.Controller{SkipNameValidation: ptr.To(true)}, // there are two agents in one spec
	})
	Expect(err).NotTo(HaveOccurred())
	registry := prometheus.NewRegistry()
	set := members.New(members.Options{
		Self: "a", ClusterUID: "uid-a", ClusterSet: "prod", Namespace: "comity-system", LostAfter: lostAfter, StatusInterval: statusInterval,
		Registry: registry, Recorder: mgr.GetEventRecorder("comity"), Log: ctrl.Log.WithName("peer"),
		LocalCluster: func() model.LocalCluster { return model.LocalCluster{} },
	})
	Expect(set.SetupWithManager(mgr)).To(Succeed())
	Expect(set.SetupStatusWithManager(mgr, imports)).To(Succeed())
	running, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		defer GinkgoRecover()
		Expect(mgr.Start(running)).To(Succeed())
	})
	DeferCleanup(func() { cancel(); ended.Wait() })
	return set, registry
}

// statusWrites counts the writes of the status of a Peer.
var statusWrites atomic.Int64

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// fakeImports are the imports of cluster a, as a test sets them.
type fakeImports struct {
	mu     sync.Mutex
	of     map[model.ClusterID]model.ImportCounts
	listed model.ClusterID
}

var imports = &fakeImports{of: map[model.ClusterID]model.ImportCounts{}}

func (i *fakeImports) Counts(id model.ClusterID) model.ImportCounts {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.of[id]
}

func (i *fakeImports) Listed(id model.ClusterID) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.listed == id
}

func (i *fakeImports) list(id model.ClusterID) {
	i.mu.Lock()
	i.listed = id
	i.mu.Unlock()
}

func (i *fakeImports) set(id model.ClusterID, counts model.ImportCounts) {
	i.mu.Lock()
	i.of[id] = counts
	i.mu.Unlock()
}

func ctx() context.Context { return context.Background() }

func (s *server) create(objects ...client.Object) {
	GinkgoHelper()
	for _, o := range objects {
		Expect(s.client.Create(ctx(), o)).To(Succeed(), "create %T %s", o, o.GetName())
	}
}

func (s *server) delete(objects ...client.Object) {
	GinkgoHelper()
	for _, o := range objects {
		Expect(s.client.Delete(ctx(), o)).To(Succeed(), "delete %T %s", o, o.GetName())
	}
}

// publish does what a member's agent does, and renews its Lease until the suite ends.
func (s *server) publish(id model.ClusterID, uid types.UID) {
	GinkgoHelper()
	shared := model.ExchangeNamespace(id)
	held := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: shared, Name: string(id)}}
	s.create(namespaced(shared), namespaced(model.ScopedExchangeNamespace(id, "a")), held, &exchangev1alpha1.MemberRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: shared, Name: string(id)},
		Spec:       exchangev1alpha1.MemberRecordSpec{ClusterID: string(id), ClusterSet: "prod", ClusterUID: uid},
	})
	running, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		defer GinkgoRecover()
		for ticker := time.NewTicker(heartbeat); ; {
			select {
			case <-running.Done():
				return
			case <-ticker.C:
				now := metav1.NowMicro()
				held.Spec.RenewTime = &now
				if err := s.client.Update(running, held); err != nil && running.Err() == nil {
					Fail("renew the Lease of " + string(id) + ": " + err.Error())
				}
			}
		}
	})
	DeferCleanup(func() { cancel(); ended.Wait() })
}

// export publishes an export of id, and gives its key.
func (s *server) export(id model.ClusterID, name string) types.NamespacedName {
	GinkgoHelper()
	s.create(exportRecord(id, name))
	return types.NamespacedName{Namespace: "shop", Name: name}
}

func exportRecord(id model.ClusterID, name string) *exchangev1alpha1.ExportRecord {
	return &exchangev1alpha1.ExportRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: model.ExchangeNamespace(id), Name: model.RecordName("shop", name)},
		Spec: exchangev1alpha1.ExportRecordSpec{
			Service:           exchangev1alpha1.ServiceReference{Namespace: "shop", Name: name},
			ExportUID:         "uid",
			ExportedAt:        metav1.Now(),
			ServiceProperties: model.ServiceProperties{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Port: 80}}},
		},
	}
}

func namespaced(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// kubeconfig leads to the API server as its administrator, changed.
func kubeconfig(address string, change ...func(*clientcmdapi.AuthInfo)) []byte {
	GinkgoHelper()
	out := clientcmdapi.NewConfig()
	out.Clusters["peer"] = &clientcmdapi.Cluster{Server: "https://" + address, CertificateAuthorityData: here.config.CAData}
	user := &clientcmdapi.AuthInfo{ClientCertificateData: here.config.CertData, ClientKeyData: here.config.KeyData, Token: here.config.BearerToken}
	for _, c := range change {
		c(user)
	}
	out.AuthInfos["peer"] = user
	out.Contexts["peer"] = &clientcmdapi.Context{Cluster: "peer", AuthInfo: "peer"}
	data, err := clientcmd.Write(*out)
	Expect(err).NotTo(HaveOccurred())
	return data
}

func peerSecret(name string, data []byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "comity-system", Name: name}, Data: map[string][]byte{"kubeconfig": data}}
}

// peer is the Peer of a cluster whose Secret is named after it.
func peer(id string, change ...func(*exchangev1alpha1.Peer)) *exchangev1alpha1.Peer {
	p := &exchangev1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: exchangev1alpha1.PeerSpec{
		ClusterSet: "prod", ClusterUID: types.UID("uid-" + id), KubeconfigSecret: "peer-" + id, AcceptedCIDRs: []string{"10.1.0.0/16", "fd00:1::/48"},
	}}
	for _, c := range change {
		c(p)
	}
	return p
}

// describe changes a Peer.
func describe(id string, change func(*exchangev1alpha1.Peer)) {
	GinkgoHelper()
	Eventually(func() error {
		p := stored(id)
		change(p)
		return here.client.Update(ctx(), p)
	}).Should(Succeed())
}

// stored is a Peer as the API server has it.
func stored(id string) *exchangev1alpha1.Peer {
	GinkgoHelper()
	p := &exchangev1alpha1.Peer{}
	Expect(here.client.Get(ctx(), client.ObjectKey{Name: id}, p)).To(Succeed())
	return p
}

// condition is a condition of a Peer: its status, reason and message.
func condition(id, typ string) func() string {
	return func() string {
		c := meta.FindStatusCondition(stored(id).Status.Conditions, typ)
		if c == nil {
			return ""
		}
		return string(c.Status) + " " + c.Reason + ": " + c.Message
	}
}

// rotate writes another kubeconfig into the Secret of b.
func rotate(data []byte) {
	GinkgoHelper()
	Eventually(func() error {
		var secret corev1.Secret
		if err := here.client.Get(ctx(), client.ObjectKey{Namespace: "comity-system", Name: "peer-b"}, &secret); err != nil {
			return err
		}
		secret.Data["kubeconfig"] = data
		return here.client.Update(ctx(), &secret)
	}).Should(Succeed())
}

// eventsOn lists the events about a Peer, reason and note in one line.
func eventsOn(id string) func() []string {
	return func() []string {
		var list eventsv1.EventList
		Expect(here.client.List(ctx(), &list)).To(Succeed())
		out := []string{}
		for _, e := range list.Items {
			if e.Regarding.Kind == "Peer" && e.Regarding.Name == id {
				out = append(out, e.Reason+": "+e.Note)
			}
		}
		return out
	}
}

func member(id model.ClusterID) func() model.Member {
	return func() model.Member {
		for _, m := range peers.Members() {
			if m.ID == id {
				return m
			}
		}
		return model.Member{}
	}
}

func exports(key types.NamespacedName) func() []model.Export {
	return func() []model.Export { return exportsOf(peers, key) }
}

func exportsOf(set *members.Set, key types.NamespacedName) (out []model.Export) {
	for _, p := range set.Read(key, false) {
		if p.Export != nil {
			out = append(out, *p.Export)
		}
	}
	return out
}

// reconnects is how often dead watches were replaced.
func reconnects() (n float64) {
	GinkgoHelper()
	families, err := registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, f := range families {
		if f.GetName() == "comity_peer_reconnects_total" {
			for _, m := range f.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}
