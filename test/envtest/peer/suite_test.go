// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2/toxics"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/members"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/envtest/suite"
)

// Times, shortened from 40 s and 5 min.
const (
	staleAfter = 3 * time.Second
	lostAfter  = 15 * time.Second // more than a question that is not answered takes
	heartbeat  = 500 * time.Millisecond
	soon       = 60 * time.Second // bounds every wait
)

func TestPeer(t *testing.T) {
	toxics.Register("mute", new(mute))
	suite.Run(t, "peer", suite.Waits{Soon: soon, Quiet: 2 * time.Second, Poll: 50 * time.Millisecond})
}

var (
	scheme = suite.Scheme()
	// here is the API server of cluster a; that of cluster c too, to save one.
	here, there server
	peers       *members.Set
	registry    *prometheus.Registry
	toB         *network
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
	for i, config := range suite.Start(suite.APIServer(), suite.APIServer()) {
		*[]*server{&here, &there}[i] = server{config: config, client: suite.Client(config)}
	}
	here.create(namespaced("comity-system"))
	there.create(namespaced("comity-system"))
	there.publish("b", "uid-b")
	here.publish("c", "uid-c")
	toB = newNetwork("b", there.address())
	here.create(peerSecret("peer-b", "b", kubeconfig(toB.address(), &there)), peerSecret("peer-c", "c", kubeconfig(here.address(), &here)))
	startAgent()
	Eventually(peers.Members).Should(And(HaveLen(2), HaveEach(HaveField("Synced", true))))
})

// startAgent runs the part of the agent of cluster a that reads the peers.
func startAgent() {
	GinkgoHelper()
	mgr, err := ctrl.NewManager(here.config, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	Expect(err).NotTo(HaveOccurred())
	registry = prometheus.NewRegistry()
	peers = members.New(members.Options{
		Self: "a", ClusterSet: "prod", Namespace: "comity-system", StaleAfter: staleAfter, LostAfter: lostAfter,
		Registry: registry, Recorder: mgr.GetEventRecorder("comity"), Log: ctrl.Log.WithName("peer"),
	})
	Expect(peers.SetupWithManager(mgr)).To(Succeed())
	running, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		defer GinkgoRecover()
		Expect(mgr.Start(running)).To(Succeed())
	})
	DeferCleanup(func() { cancel(); ended.Wait() })
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
			Service: exchangev1alpha1.ServiceReference{Namespace: "shop", Name: name}, ExportUID: "uid", ExportedAt: metav1.Now(),
			Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Port: 80}},
		},
	}
}

func namespaced(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// kubeconfig leads to a server as its administrator, changed.
func kubeconfig(address string, s *server, change ...func(*clientcmdapi.AuthInfo)) []byte {
	GinkgoHelper()
	out := clientcmdapi.NewConfig()
	out.Clusters["peer"] = &clientcmdapi.Cluster{Server: "https://" + address, CertificateAuthorityData: s.config.CAData}
	user := &clientcmdapi.AuthInfo{ClientCertificateData: s.config.CertData, ClientKeyData: s.config.KeyData, Token: s.config.BearerToken}
	for _, c := range change {
		c(user)
	}
	out.AuthInfos["peer"] = user
	out.Contexts["peer"] = &clientcmdapi.Context{Cluster: "peer", AuthInfo: "peer"}
	data, err := clientcmd.Write(*out)
	Expect(err).NotTo(HaveOccurred())
	return data
}

func peerSecret(name, id string, data []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "comity-system", Name: name,
			Labels: map[string]string{model.LabelClusterID: id, model.LabelClusterSet: "prod"},
		},
		Data: map[string][]byte{"kubeconfig": data},
	}
}

// rotate writes another kubeconfig into the Secret of b, and waits until the
// agent has seen that.
func rotate(data []byte) {
	GinkgoHelper()
	var secret corev1.Secret
	Eventually(func() error {
		if err := here.client.Get(ctx(), client.ObjectKey{Namespace: "comity-system", Name: "peer-b"}, &secret); err != nil {
			return err
		}
		secret.Data["kubeconfig"] = data
		secret.Labels["rotated"] = secret.ResourceVersion
		return here.client.Update(ctx(), &secret)
	}).Should(Succeed())
	Eventually(member("b")).Should(HaveField("Labels", HaveKeyWithValue("rotated", secret.Labels["rotated"])))
}

// eventsOn lists what was said of a Secret, reason and note in one line.
func eventsOn(secret string) func() []string {
	return func() []string {
		var list eventsv1.EventList
		Expect(here.client.List(ctx(), &list, client.InNamespace("comity-system"))).To(Succeed())
		out := []string{}
		for _, e := range list.Items {
			if e.Regarding.Kind == "Secret" && e.Regarding.Name == secret {
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

func state(id model.ClusterID) func() members.State {
	return func() members.State {
		for _, s := range peers.States() {
			if s.ID == id {
				return s
			}
		}
		return members.State{}
	}
}

func exports(key types.NamespacedName) func() []model.Export {
	return func() []model.Export { return peers.Exports(key) }
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
