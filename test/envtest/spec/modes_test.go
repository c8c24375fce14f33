// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"strings"
	"time"

	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
)

// Each spec gives the agent of a another mode, the last one the usual one back.
var _ = Describe("the agent of a", Ordered, Serial, func() {
	isUsual := true
	mode := func(ctx SpecContext, flags ...string) {
		GinkgoHelper()
		isUsual = len(flags) == 0
		a.Restart(ctx, flags...)
	}
	AfterAll(func(ctx SpecContext) {
		if !isUsual {
			mode(ctx)
		}
	}, NodeTimeout(time.Minute))

	It("with --takeover=sveltos adopts in place what the pipeline made", func(ctx SpecContext) {
		ns := namespace(ctx, "takeover")
		b.Create(ctx, selecting(ns, "web"), pod(ns, "web", "web-1"))
		remote := addresses(ctx, b, ns, "web", 1)
		theirs := byPipeline(ctx, a, b, ns, "web", remote[0])
		ip := theirs.service.Spec.ClusterIP
		Eventually(ctx, lookup(a, hostOf(ns, "web"), dns.TypeA)).Should(Equal([]string{ip}), "the pipeline's import works")

		By("leaving it alone without the flag")
		b.Create(ctx, clusterset.Export(ns, "web"))
		Eventually(ctx, b.ExportCondition(ns, "web", "Available")).Should(And(HavePrefix("False/ForeignImport: "), ContainSubstring(" a ")))
		Expect(theirs.read(ctx).versions()).To(Equal(theirs.versions()))

		mode(ctx, "--takeover=sveltos")
		from := time.Now()
		Eventually(ctx, a.ImportCondition(ns, "web", "Ready")).Should(HavePrefix("True/"))
		var now pipelined
		Eventually(ctx, func() []string { now = theirs.read(ctx); return now.leftovers() }).Should(BeEmpty())
		Expect(now.uids()).To(Equal(theirs.uids()), "nothing is deleted and created again")
		Expect(now.service.Spec.ClusterIP).To(Equal(ip))
		Eventually(ctx, func() map[string]string { return theirs.read(ctx).service.Spec.Selector }).Should(BeEmpty())
		Expect(now.imported.Spec.IPs).To(Equal([]string{ip}))
		Expect(now.slice.Labels).To(HaveKeyWithValue(model.LabelSourceCluster, "b"))
		Eventually(ctx, func() []string { return endpointsOf(ctx, a, now.service) }).Should(ConsistOf(remote[0]))
		Expect(lookup(a, hostOf(ns, "web"), dns.TypeA)(ctx)).To(Equal([]string{ip}))
		Eventually(ctx, b.ExportCondition(ns, "web", "Available")).Should(HavePrefix("True/Imported: "))
		clusterset.AwaitQuiet(ctx, a)
		for _, w := range written(a, from, ns) {
			Expect(strings.HasPrefix(w, "delete")).To(BeFalse(), w)
		}
	}, SpecTimeout(2*time.Minute))

	It("with --import=false writes the status of others' ServiceImports, and nothing else", func(ctx SpecContext) {
		mode(ctx, "--import=false")
		ns, from := namespace(ctx, "addon"), time.Now()
		theirs := clusterset.Import(ns, "web")
		theirs.Spec = mcsv1beta1.ServiceImportSpec{
			Type: mcsv1beta1.ClusterSetIP, IPs: []string{"10.201.255.1"}, Ports: []mcsv1beta1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
		}
		a.Create(ctx, theirs)
		before := clusterset.Get(ctx, a, clusterset.Import(ns, "web"))
		b.Create(ctx, selecting(ns, "web"), pod(ns, "web", "web-1"), clusterset.Export(ns, "web"))
		Eventually(ctx, a.ImportCondition(ns, "web", "Ready")).Should(
			And(HavePrefix("True/"), ContainSubstring("made by another implementation than Comity"), ContainSubstring("b")))
		Eventually(ctx, a.ImportCondition(ns, "web", "Available")).Should(HavePrefix("True/Connected: "))
		after := clusterset.Get(ctx, a, clusterset.Import(ns, "web"))
		Expect(after.Spec).To(Equal(before.Spec))
		Expect(after.Generation).To(Equal(before.Generation))
		Expect(after.Status.Clusters).To(ConsistOf(mcsv1beta1.ClusterStatus{Cluster: "b"}))
		Eventually(ctx, b.ExportCondition(ns, "web", "Available")).Should(And(HavePrefix("False/ImportDisabled: "), ContainSubstring(" a ")))
		clusterset.AwaitQuiet(ctx, a)
		for _, w := range written(a, from, ns) {
			Expect(w).To(HavePrefix("patch multicluster.x-k8s.io/serviceimports/status " + ns + "/web "))
		}
		Expect(a.Slices(ctx, ns, "web")).To(BeEmpty())

		By("publishing its own exports all the same")
		a.Create(ctx, selecting(ns, "mine"), pod(ns, "mine", "mine-1"), clusterset.Export(ns, "mine"))
		own := addresses(ctx, a, ns, "mine", 1)
		Eventually(ctx, b.Backends(ns, "mine")).Should(Equal([]string{"a/" + own[0]}))
	}, SpecTimeout(2*time.Minute))

	It("with --selectors=maintain lets local pods join by themselves", func(ctx SpecContext) {
		mode(ctx, "--selectors=maintain")
		DeferCleanup(func(ctx SpecContext) { b.Restart(ctx) }, NodeTimeout(time.Minute))
		b.Restart(ctx, "--selectors=maintain") // who exports tells the selector
		ns := namespace(ctx, "maintain")
		b.Create(ctx, selecting(ns, "web"), pod(ns, "web", "web-1"), clusterset.Export(ns, "web"))
		remote := addresses(ctx, b, ns, "web", 1)
		Eventually(ctx, a.Backends(ns, "web")).Should(Equal([]string{"b/" + remote[0]}))
		Eventually(ctx, func() map[string]string { return a.Derived(ctx, ns, "web").Spec.Selector }).Should(Equal(map[string]string{"app": "web"}))
		By("starting a pod in a")
		a.Create(ctx, pod(ns, "web", "web-local"))
		local := addresses(ctx, a, ns, "web", 1)
		derived := a.Derived(ctx, ns, "web")
		joined := func() []string { return endpointsOf(ctx, a, derived) }
		Eventually(ctx, joined).Should(ConsistOf(remote[0], local[0]))
		Eventually(ctx, lookup(a, hostOf(ns, "web"), dns.TypeA)).Should(Equal(derived.Spec.ClusterIPs[:1]))
		By("ending it")
		Expect(a.Client.Delete(ctx, pod(ns, "web", "web-local"))).To(Succeed())
		Eventually(ctx, joined).Should(ConsistOf(remote[0]))
		Expect(a.Derived(ctx, ns, "web").Spec.ClusterIP).To(Equal(derived.Spec.ClusterIP))
		By("going back to derived Services without selector")
		mode(ctx)
		Eventually(ctx, func() map[string]string { return a.Derived(ctx, ns, "web").Spec.Selector }).Should(BeEmpty())
		Expect(a.Derived(ctx, ns, "web").UID).To(Equal(derived.UID))
		Eventually(ctx, joined).Should(ConsistOf(remote[0]))
	}, SpecTimeout(2*time.Minute))
})
