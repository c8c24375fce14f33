// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// looked waits until the agent of c has worked on an import since its start.
func (c *cluster) looked(namespace, name string) {
	GinkgoHelper()
	Eventually(func() bool {
		_, ok := c.agent.running.Observe(types.NamespacedName{Namespace: namespace, Name: name})
		return ok
	}).Should(BeTrue(), "%s has not looked at %s/%s", c.id, namespace, name)
}

// An agent that is killed at each of its writes is tested in test/simulator, and real
// processes that are killed at any moment, or restarted on a converged clusterset, in
// test/envtest/agent.
var _ = Describe("an agent", Serial, func() {
	It("that is restarted while a peer cannot be reached deletes nothing, and goes on without it", func() {
		ns := newNamespace("a", "b", "c")
		a, b := clusters["a"], clusters["b"]
		exported := export(ns, "web")
		a.create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1"), exported)
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
		Eventually(func() *mcsv1beta1.ServiceImport { return b.serviceImport(ns, "web") }).ShouldNot(BeNil())
		a.proxy.cut()
		DeferCleanup(a.proxy.mend)
		b.stop()
		b.start()
		b.looked(ns, "web")
		// c, too, is unread for a moment.
		Eventually(func() []model.ClusterID {
			seen, _ := b.agent.running.Observe(types.NamespacedName{Namespace: ns, Name: "web"})
			return seen.Unsynced
		}).Should(Equal([]model.ClusterID{"a"}))

		clusters["c"].create(service(ns, "other"), endpoints(ns, "other", "other-x1", "10.3.0.1"), export(ns, "other"))
		Eventually(b.backends(ns, "other")).Should(Equal([]string{"c/10.3.0.1"}), "c is not held up by a")
		Consistently(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
		Expect(b.serviceImport(ns, "web")).NotTo(BeNil())
		Expect(read[corev1.Service](b, ns, model.DerivedName("web"))).NotTo(BeNil())

		By("withdrawing the export meanwhile: it goes when a was read, not before")
		a.delete(exported)
		Eventually(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"withdrawal in comity-a"}))
		Expect(b.backends(ns, "web")()).To(Equal([]string{"a/10.1.0.1"}))
		a.proxy.mend()
		Eventually(b.backends(ns, "web"), 2*soon).Should(BeEmpty())
		Eventually(func() *mcsv1beta1.ServiceImport { return b.serviceImport(ns, "web") }).Should(BeNil())
		b.awaitPeers()
	})

	It("makes up for what happened while it was down, and states it", func() {
		ns := newNamespace("a", "b")
		a, b := clusters["a"], clusters["b"]
		gone, stays := export(ns, "gone"), export(ns, "stays")
		for _, e := range []*mcsv1beta1.ServiceExport{gone, stays} {
			a.create(service(ns, e.Name), endpoints(ns, e.Name, e.Name+"-x1", "10.1.0.1"), e)
			Eventually(b.backends(ns, e.Name)).Should(Equal([]string{"a/10.1.0.1"}))
		}
		a.stop()
		b.stop()
		a.delete(gone)
		b.delete(read[corev1.Service](b, ns, model.DerivedName("stays")))
		a.start()
		b.start()
		Eventually(func() []string { return a.records(ns, "gone") }).Should(Equal([]string{"withdrawal in comity-a"}))
		for _, c := range []*cluster{a, b} {
			c.awaitPeers()
			Eventually(c.backends(ns, "gone")).Should(BeEmpty())
			Eventually(func(g Gomega) {
				derived, imported := read[corev1.Service](c, ns, model.DerivedName("stays")), c.serviceImport(ns, "stays")
				g.Expect(derived).NotTo(BeNil())
				g.Expect(imported).NotTo(BeNil())
				g.Expect(imported.Spec.IPs).To(Equal(derived.Spec.ClusterIPs))
			}).Should(Succeed())
		}
	})

	It("takes back what users do to derived objects", func() {
		ns := newNamespace("a", "b")
		b := clusters["b"]
		clusters["a"].create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1"), export(ns, "web"))
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
		Eventually(func() *mcsv1beta1.ServiceImport { return b.serviceImport(ns, "web") }).ShouldNot(BeNil())

		slice := b.derivedSlices(ns, "web")[0]
		slice.Endpoints[0].Addresses = []string{"10.66.66.66"}
		Expect(b.client.Update(ctx(), &slice)).To(Succeed())
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))

		slice = b.derivedSlices(ns, "web")[0]
		delete(slice.Labels, model.LabelServiceName)
		Expect(b.client.Update(ctx(), &slice)).To(Succeed())
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}), "a label taken off")
	})

	It("writes nothing into a namespace that is being deleted, and does not insist", func() {
		ns := newNamespace("a", "b")
		a, b := clusters["a"], clusters["b"]
		slice := endpoints(ns, "web", "web-x1", "10.1.0.1")
		a.create(service(ns, "web"), slice, export(ns, "web"))
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
		b.delete(read[corev1.Namespace](b, "", ns)) // stays Terminating: nothing finishes it here
		Eventually(destinations(a, types.NamespacedName{Namespace: ns, Name: "web"})).Should(ContainElement("b NamespaceMissing false"))
		written := func() []string {
			return slices.DeleteFunc(b.agent.writer.written(), func(text string) bool { return !strings.Contains(text, " "+ns+"/") })
		}
		before := written()
		slice.Endpoints[0].Addresses = []string{"10.1.0.3"}
		Expect(a.client.Update(ctx(), slice)).To(Succeed())
		Eventually(a.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.3"}))
		Consistently(written).Should(Equal(before))
	})
})
