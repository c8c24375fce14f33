// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/status/condition"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
)

// That statements of withdrawal do not pile up meanwhile is tested in sync/controllers and
// sync/decide: thousands of them take an API server half a minute.
var _ = Describe("FAULT 48: a member that is not read for weeks", func() {
	const ns = "unread"
	It("keeps no export from being imported, and what is frozen says by whom until the member is removed", func(ctx SpecContext) {
		setUp(ctx, ns)
		exportOne(ctx, b, ns, "web", 8080, "10.89.0.1")
		exportOne(ctx, b, ns, "alone", 8080, "10.89.0.2")
		Eventually(ctx, a.Backends(ns, "alone")).Should(Equal([]string{"b/10.89.0.2"}))
		By("exporting from a, in a later second, so that b decides")
		awaitLaterSecond(ctx, b, ns, "web")
		exportOne(ctx, a, ns, "web", 8080, "10.89.0.3")
		Eventually(ctx, a.Backends(ns, "web")).Should(Equal([]string{"a/10.89.0.3", "b/10.89.0.1"}))
		whole, before := a.AllBackends(ctx, ns), addresses(ctx, a, ns)
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.IgnoreNotFound(a.Client.Delete(ctx, clusterset.Peer("b")))).To(Succeed())
			set.Join(ctx, "a", "b")
		}, NodeTimeout(2*time.Minute))

		By("starting the agent without what it needs to read the member")
		a.ChangePeer(ctx, "b", func(s *exchangev1alpha1.PeerSpec) { s.KubeconfigSecret = "none" })
		a.KillAgent(ctx)
		a.AwaitReady(ctx)
		kept(ctx, a, ns, whole, "b is not read")

		By("exporting another one, and adding a port to one that b decides")
		exportOne(ctx, a, ns, "later", 8080, "10.89.0.4")
		Eventually(ctx, b.Backends(ns, "later")).Should(Equal([]string{"a/10.89.0.4"}))
		clusterset.Change(ctx, a, clusterset.Service(ns, "web"), func(s *corev1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "admin", Port: 81})
		})
		Eventually(ctx, a.ImportCondition(ns, "web", condition.TypeFrozen)).Should(And(
			HavePrefix("True/NotRead: "), ContainSubstring("cluster b"), ContainSubstring("kubectl comity leave --id b")))
		ports := func() int { return len(clusterset.Get(ctx, a, clusterset.Import(ns, "web")).Spec.Ports) }
		Expect(ports()).To(Equal(1))

		By("removing the member, of which nothing but the id is known")
		Expect(a.Client.Delete(ctx, clusterset.Peer("b"))).To(Succeed())
		a.Create(ctx, &exchangev1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: exchangev1alpha1.PeerSpec{Removed: true}})
		Eventually(ctx, a.PeerCondition("b", exchangev1alpha1.PeerRemoved)).Should(HavePrefix("True/"))
		Eventually(ctx, ports).Should(Equal(2))
		Eventually(ctx, held(a, ns)).Should(BeEmpty())
		Eventually(ctx, func() []string { return a.AllBackends(ctx, ns) }).Should(Equal([]string{"a/10.89.0.3", "a/10.89.0.4"}))
		derived := a.Derived(ctx, ns, "web").Name
		Expect(addresses(ctx, a, ns)[derived]).To(Equal(before[derived]))
	}, SpecTimeout(3*time.Minute))
})
