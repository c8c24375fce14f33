// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
	"github.com/comity-mcs/comity/test/install"
)

// read has m read another cluster by the Secret of a Peer: what an administrator may do
// without kubectl comity join, which refuses a cluster with another UID.
func read(ctx context.Context, m *clusterset.Member, id model.ClusterID, other *clusterset.Member) {
	GinkgoHelper()
	objects, err := join.Objects(nil, other.As(id), m.As(model.ClusterID(m.ID())))
	Expect(err).NotTo(HaveOccurred())
	for _, o := range objects[0] {
		Expect(client.IgnoreAlreadyExists(other.Client.Create(ctx, o))).To(Succeed(), "create %T %s", o, o.GetName())
	}
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clusters.ServiceAccountKubeconfig(ctx, other.Cluster, install.Namespace, model.PeerName(model.ClusterID(m.ID())), path)).To(Succeed())
	kubeconfig, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	putKubeconfig(ctx, m, id, kubeconfig)
}

// putKubeconfig replaces what is in the Secret of a Peer, and returns what was there.
func putKubeconfig(ctx context.Context, m *clusterset.Member, id model.ClusterID, kubeconfig []byte) (before []byte) {
	GinkgoHelper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: model.PeerName(id)}}
	clusterset.Change(ctx, m, secret, func(s *corev1.Secret) {
		before, s.Data[join.KubeconfigKey] = s.Data[join.KubeconfigKey], kubeconfig
	})
	return before
}

// clusterUID is the UID of the kube-system namespace of m.
func clusterUID(ctx context.Context, m *clusterset.Member) string {
	GinkgoHelper()
	return string(clusterset.Get(ctx, m, clusterset.Namespace(metav1.NamespaceSystem)).UID)
}

var _ = Describe("FAULT 38 and 42: another cluster with the id of a peer", func() {
	const ns = "rebuilt"
	It("is refused, and what was imported stays, until join --replace accepts it; then every import keeps its name and address", func(ctx SpecContext) {
		setUp(ctx, ns)
		set.Add(ctx, controlplane.Options{IDs: []string{"green"}, APIServerOnly: true})
		green := set.Members["green"]
		green.Restart(ctx, "--cluster-id=b")
		green.Create(ctx, clusterset.Namespace(ns))
		manifests := func(m *clusterset.Member, address string) {
			for i, name := range []string{"web", "shared", "gone"} {
				exportOne(ctx, m, ns, name, 8080, address+string(rune('1'+i)))
			}
		}
		manifests(b, "10.90.1.")
		awaitLaterSecond(ctx, b, ns, "shared")
		exportOne(ctx, a, ns, "shared", 8080, "10.90.9.9") // it joins what b decides
		all := func() []string { return a.AllBackends(ctx, ns) }
		Eventually(ctx, all).Should(HaveLen(4))
		Eventually(ctx, b.Backends(ns, "shared")).Should(HaveLen(2))
		whole, before := all(), addresses(ctx, a, ns)

		By("refusing to join it")
		peer := clusterset.Get(ctx, a, clusterset.Peer("b"))
		Expect(install.Join(ctx, nil, []join.Cluster{green.As("b"), a.As("a")}, join.Options{})).To(MatchError(And(
			ContainSubstring("join --replace"), ContainSubstring(clusterUID(ctx, b)), ContainSubstring(clusterUID(ctx, green)))))
		Expect(clusterset.Get(ctx, a, clusterset.Peer("b")).Spec).To(Equal(peer.Spec))

		By("reading it by the Secret, with the UID of the other one in the Peer")
		kubeconfig := putKubeconfig(ctx, a, "b", nil)
		read(ctx, a, "b", green)
		Eventually(ctx, a.PeerCondition("b", exchangev1alpha1.PeerAccepted)).Should(HavePrefix("False/" + remote.ReasonClusterIDReused))
		kept(ctx, a, ns, whole, "another cluster answers")
		a.KillAgent(ctx)
		a.AwaitLeader(ctx)
		kept(ctx, a, ns, whole, "after a restart")
		putKubeconfig(ctx, a, "b", kubeconfig)
		change(ctx, b, ns, "web", "10.90.1.7")
		Eventually(ctx, a.Backends(ns, "web")).Should(Equal([]string{"b/10.90.1.7"}))

		By("accepting it, before it has its manifests")
		Expect(b.Pause(controlplane.APIServer)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { // whatever of it was reached
			Expect(b.Resume(controlplane.APIServer)).To(Succeed())
			clusterset.JoinReplaced(ctx, b.As("b"), a.As("a"))
		}, NodeTimeout(time.Minute))
		whole = all()
		clusterset.JoinReplaced(ctx, green.As("b"), a.As("a"))
		Eventually(ctx, missing(a, ns)).Should(ConsistOf("web", "shared", "gone"), "what it does not publish")
		Expect(all()).To(Equal(whole))
		By("applying its manifests")
		for i, name := range []string{"web", "shared"} {
			exportOne(ctx, green, ns, name, 8080, "10.90.2."+string(rune('1'+i)))
		}
		Eventually(ctx, all).Should(Equal([]string{"a/10.90.9.9", "b/10.90.1.3", "b/10.90.2.1", "b/10.90.2.2"}))
		Expect(addresses(ctx, a, ns)).To(Equal(before))
		Eventually(ctx, held(a, ns)).Should(HaveEach(HavePrefix("gone ")))
		By("confirming what it does not have any more")
		a.ConfirmMissing(ctx, "b")
		Eventually(ctx, a.Backends(ns, "gone")).Should(BeEmpty())
		Eventually(ctx, held(a, ns)).Should(BeEmpty())
		// It has no list of its first life: there, the older export of a decides.
		Eventually(ctx, a.ExportCondition(ns, "shared", "Available")).Should(HavePrefix("True/DecidersDiffer: "))

		By("accepting the first one again")
		Expect(b.Resume(controlplane.APIServer)).To(Succeed())
		b.AwaitReady(ctx)
		clusterset.JoinReplaced(ctx, b.As("b"), a.As("a"))
		Eventually(ctx, a.Backends(ns, "web")).WithTimeout(nextTry).Should(Equal([]string{"b/10.90.1.7"}))
		Eventually(ctx, held(a, ns)).Should(BeEmpty())
		after := addresses(ctx, a, ns)
		for _, name := range []string{"web", "shared"} {
			derived := a.Derived(ctx, ns, name).Name
			Expect(after[derived]).To(Equal(before[derived]), name)
		}
	}, SpecTimeout(6*time.Minute))
})
