// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
	"github.com/comity-mcs/comity/test/install"
)

// destroy makes m another cluster, empty, of the same id and at the same address.
func destroy(ctx context.Context, m *clusterset.Member) {
	GinkgoHelper()
	for _, component := range []string{controlplane.APIServer, controlplane.Etcd} {
		Expect(m.Kill(component)).To(Succeed())
	}
	Expect(os.RemoveAll(filepath.Join(m.Dir(), "etcd"))).To(Succeed())
	for _, component := range []string{controlplane.Etcd, controlplane.APIServer} {
		Expect(m.Start(ctx, component)).To(Succeed())
	}
	m.Reinstall(ctx)
}

// clusterUID is the UID of the kube-system namespace of m.
func clusterUID(ctx context.Context, m *clusterset.Member) string {
	GinkgoHelper()
	return string(clusterset.Get(ctx, m, clusterset.Namespace(metav1.NamespaceSystem)).UID)
}

var _ = Describe("FAULT 38 and 42: a cluster is destroyed and made again with the same id", func() {
	const ns = "rebuilt"
	It("is refused, and what was imported stays, until join --replace accepts it; then every import keeps its name and address", func(ctx SpecContext) {
		setUp(ctx, ns)
		afterFailure(func(ctx context.Context) { clusterset.JoinReplaced(ctx, b.As("b"), a.As("a")) })
		keepIfLost(ctx, a, ns)
		manifests := func(addresses string, names ...string) {
			for i, name := range names {
				exportOne(ctx, b, ns, name, 8080, fmt.Sprint(addresses, i+1))
			}
		}
		manifests("10.90.1.", "web", "shared", "gone")
		awaitLaterSecond(ctx, b, ns, "shared")
		exportOne(ctx, a, ns, "shared", 8080, "10.90.9.9") // it joins what b decides
		all := func() []string { return a.AllBackends(ctx, ns) }
		Eventually(ctx, all).Should(HaveLen(4))
		Eventually(ctx, b.Backends(ns, "shared")).Should(HaveLen(2))
		whole, before := all(), addresses(ctx, a, ns)
		peer, first := clusterset.Get(ctx, a, clusterset.Peer("b")), clusterUID(ctx, b)
		destroy(ctx, b)

		By("refusing to join it")
		Expect(install.Join(ctx, nil, []join.Cluster{b.As("b"), a.As("a")}, join.Options{})).To(MatchError(And(
			ContainSubstring("join --replace"), ContainSubstring(first), ContainSubstring(clusterUID(ctx, b)))))
		Expect(clusterset.Get(ctx, a, clusterset.Peer("b")).Spec).To(Equal(peer.Spec))
		kept(ctx, a, ns, whole, "it is another cluster")

		By("accepting it, before it has its manifests")
		b.Create(ctx, clusterset.Namespace(ns))
		clusterset.JoinReplaced(ctx, b.As("b"), a.As("a"))
		Eventually(ctx, missing(a, ns)).Should(ConsistOf("web", "shared", "gone"), "what it does not publish")
		Expect(all()).To(Equal(whole))
		By("applying its manifests")
		manifests("10.90.2.", "web", "shared")
		Eventually(ctx, all).Should(Equal([]string{"a/10.90.9.9", "b/10.90.1.3", "b/10.90.2.1", "b/10.90.2.2"}))
		Expect(addresses(ctx, a, ns)).To(Equal(before))
		Eventually(ctx, held(a, ns)).Should(HaveEach(HavePrefix("gone ")))
		By("confirming what it does not have any more")
		a.ConfirmMissing(ctx, "b")
		Eventually(ctx, a.Backends(ns, "gone")).Should(BeEmpty())
		Eventually(ctx, held(a, ns)).Should(BeEmpty())
		// It has no list of its first life: there, the older export of a decides.
		Eventually(ctx, a.ExportCondition(ns, "shared", "Available")).Should(HavePrefix("True/DecidersDiffer: "))
		after := addresses(ctx, a, ns)
		for _, name := range []string{"web", "shared"} {
			derived := a.Derived(ctx, ns, name).Name
			Expect(after[derived]).To(Equal(before[derived]), name)
		}
	}, SpecTimeout(6*time.Minute))
})
