// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/envtest/suite"
)

func TestJoin(t *testing.T) {
	suite.Run(t, "join", suite.Waits{Poll: 100 * time.Millisecond})
}

var scheme = suite.Scheme()

// clusters are a, b and c: API servers of their own, started once.
var clusters = map[model.ClusterID]*rest.Config{}

// administrators have the clients of admin.
var administrators = map[model.ClusterID]client.Client{}

var _ = BeforeSuite(func() {
	for i, config := range suite.Start(suite.APIServer(), suite.APIServer(), suite.APIServer()) {
		id := []model.ClusterID{"a", "b", "c"}[i]
		clusters[id], administrators[id] = config, connectTo(config)
		stateServiceRange(config)
	}
	ctx, stop := context.WithCancel(context.Background())
	var agents sync.WaitGroup
	for id := range clusters {
		agents.Go(func() { removeImports(ctx, admin(id)) })
	}
	DeferCleanup(func() { stop(); agents.Wait() })
})

// removing is true while agents remove what they imported.
var removing atomic.Bool

// agentsRemove has them do so until the spec ends.
func agentsRemove() {
	removing.Store(true)
	DeferCleanup(removing.Store, false)
}

// removeImports does what agents do with a Peer that was removed: they remove what they
// imported, and say so.
func removeImports(ctx context.Context, c client.Client) {
	defer GinkgoRecover()
	for ctx.Err() == nil {
		var peers v1alpha1.PeerList
		if removing.Load() && c.List(ctx, &peers) == nil {
			for i := range peers.Items {
				if peer := &peers.Items[i]; peer.Spec.Removed {
					apimeta.SetStatusCondition(&peer.Status.Conditions, metav1.Condition{Type: v1alpha1.PeerRemoved, Status: "True", Reason: "Removed", ObservedGeneration: peer.Generation})
					_ = c.Status().Update(ctx, peer) // the Peer may have changed, or be gone
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// stateServiceRange writes down the Service range as kubeadm does, where the API
// server is older than Kubernetes 1.33 and serves no ServiceCIDR.
func stateServiceRange(config *rest.Config) {
	GinkgoHelper()
	api, err := discovery.NewDiscoveryClientForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	served, err := api.ServerResourcesForGroupVersion("networking.k8s.io/v1")
	Expect(err).NotTo(HaveOccurred())
	if slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == "servicecidrs" }) {
		return
	}
	Expect(connectTo(config).Create(context.Background(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"},
		Data:       map[string]string{"ClusterConfiguration": "networking: {serviceSubnet: 10.0.0.0/24}\n"}, // envtest's range
	})).To(Succeed())
}

// kubeadmStates puts what kubeadm would have written down of a cluster in place of
// what is there, until the spec ends.
func kubeadmStates(ctx SpecContext, id model.ClusterID, text string) {
	GinkgoHelper()
	config := &corev1.ConfigMap{Data: map[string]string{"ClusterConfiguration": text}}
	config.Namespace, config.Name = metav1.NamespaceSystem, "kubeadm-config"
	Expect(client.IgnoreNotFound(admin(id).Delete(ctx, config.DeepCopy()))).To(Succeed())
	Expect(admin(id).Create(ctx, config)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(admin(id).Delete(ctx, config)).To(Succeed())
		stateServiceRange(clusters[id])
	})
}

// cluster describes one of the clusters for join, under its own id. There are no
// Nodes that could tell its pod range: 10.1.0.0/16, 10.2.0.0/16 or 10.3.0.0/16.
func cluster(id model.ClusterID) join.Cluster {
	pods := fmt.Sprintf("10.%d.0.0/16", id[0]-'a'+1)
	return join.Cluster{ID: id, Set: "prod", RESTConfig: clusters[id], PodCIDRs: prefixes(pods)}
}

func prefixes(texts ...string) []netip.Prefix {
	GinkgoHelper()
	var out []netip.Prefix
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		Expect(err).NotTo(HaveOccurred())
		out = append(out, prefix)
	}
	return out
}

func connectTo(config *rest.Config) client.Client {
	GinkgoHelper()
	c, err := client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return c
}

func admin(id model.ClusterID) client.Client { return administrators[id] }

// forgetAll deletes the Peers of other specs, which belong to no namespace.
func forgetAll(ctx SpecContext) {
	GinkgoHelper()
	for id := range clusters {
		Expect(admin(id).DeleteAllOf(ctx, &v1alpha1.Peer{})).To(Succeed())
	}
}

// peerOf is the Peer in holder for another cluster.
func peerOf(ctx SpecContext, holder, peer model.ClusterID) *v1alpha1.Peer {
	GinkgoHelper()
	found := &v1alpha1.Peer{}
	Expect(admin(holder).Get(ctx, client.ObjectKey{Name: string(peer)}, found)).To(Succeed())
	return found
}

// uidOf identifies a cluster.
func uidOf(ctx SpecContext, id model.ClusterID) types.UID {
	GinkgoHelper()
	system := &corev1.Namespace{}
	Expect(admin(id).Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system)).To(Succeed())
	return system.UID
}

// peerSecret is the Secret in holder by which it reaches peer.
func peerSecret(ctx context.Context, holder, peer model.ClusterID) *corev1.Secret {
	GinkgoHelper()
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: join.DefaultNamespace, Name: model.PeerName(peer)}
	Expect(admin(holder).Get(ctx, key, secret)).To(Succeed())
	return secret
}

// credential is how holder reaches peer: with what its Secret holds, nothing else.
func credential(ctx context.Context, holder, peer model.ClusterID) *rest.Config {
	GinkgoHelper()
	config, err := clientcmd.RESTConfigFromKubeConfig(peerSecret(ctx, holder, peer).Data[join.KubeconfigKey])
	Expect(err).NotTo(HaveOccurred())
	return config
}
