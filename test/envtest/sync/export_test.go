// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

var _ = Describe("an exported Service", func() {
	It("is imported wherever its namespace exists, the exporter included", func() {
		ns := newNamespace("a", "b")
		a, b := clusters["a"], clusters["b"]
		a.create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1", "10.1.0.2"), export(ns, "web"))

		derived := model.DerivedName("web")
		for _, c := range []*cluster{a, b} {
			Eventually(c.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1", "a/10.1.0.2"}))
			var imported *mcsv1beta1.ServiceImport
			Eventually(func() *mcsv1beta1.ServiceImport {
				imported = c.serviceImport(ns, "web")
				return imported
			}).ShouldNot(BeNil())
			Expect(imported.Spec.Type).To(Equal(mcsv1beta1.ClusterSetIP))
			Expect(imported.Annotations).To(HaveKeyWithValue(model.AnnotationDerivedName, derived))
			own := read[corev1.Service](c, ns, derived)
			Expect(own).NotTo(BeNil())
			Expect(own.Spec.Selector).To(BeEmpty())
			Expect(imported.Spec.IPs).To(Equal(own.Spec.ClusterIPs))
			Expect(own.Labels).To(And(
				HaveKeyWithValue(model.LabelServiceName, "web"), HaveKeyWithValue(model.LabelServiceImported, "true"),
				HaveKeyWithValue("app.kubernetes.io/managed-by", "comity")))

			slices := c.derivedSlices(ns, "web")
			Expect(slices).To(HaveLen(1))
			Expect(slices[0].Name).To(Equal(derived + "-a"))
			Expect(slices[0].Labels).To(And(
				HaveKeyWithValue(discoveryv1.LabelServiceName, derived), HaveKeyWithValue(discoveryv1.LabelManagedBy, "comity"),
				HaveKeyWithValue(model.LabelServiceName, "web"), HaveKeyWithValue(model.LabelSourceCluster, "a")))
			if c == a {
				Expect(slices[0].Endpoints[0].NodeName).To(HaveValue(Equal("node-1")), "internalTrafficPolicy: Local needs it at home")
			} else {
				Expect(slices[0].Endpoints[0].NodeName).To(BeNil(), "a node of a is nothing in b")
			}
			Expect(slices[0].Endpoints[0].Zone).To(HaveValue(Equal("zone-1")))
		}
		Expect(a.records(ns, "web")).To(Equal([]string{"record in comity-a", "slice in comity-a"}))
		Consistently(func() []string { return clusters["c"].ownedIn(ns) }).Should(BeEmpty(), "c has no such namespace")
	})

	It("follows its endpoints and leaves with its ServiceExport", func() {
		ns := newNamespace("a", "b")
		a, b := clusters["a"], clusters["b"]
		slice := endpoints(ns, "web", "web-x1", "10.1.0.1")
		exported := export(ns, "web")
		a.create(service(ns, "web"), slice, exported)
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))

		slice.Endpoints[0].Addresses = []string{"10.1.0.9"}
		Expect(a.client.Update(ctx(), slice)).To(Succeed())
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.9"}))
		second := endpoints(ns, "web", "web-x2", "10.1.0.3")
		a.create(second)
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.3", "a/10.1.0.9"}))
		a.delete(slice)
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.3"}))

		a.delete(exported)
		for _, c := range []*cluster{a, b} {
			Eventually(func() []string { return c.ownedIn(ns) }).Should(BeEmpty())
		}
		Eventually(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"withdrawal in comity-a"}))
	})

	It("is headless where the Service is", func() {
		ns := newNamespace("a", "b")
		slice := endpoints(ns, "db", "db-x1", "10.1.0.1")
		slice.Endpoints[0].Hostname = ptr.To("db-0")
		clusters["a"].create(service(ns, "db", headless), slice, export(ns, "db"))
		b := clusters["b"]
		Eventually(b.backends(ns, "db")).Should(Equal([]string{"a/10.1.0.1"}))
		Eventually(func() *mcsv1beta1.ServiceImport { return b.serviceImport(ns, "db") }).ShouldNot(BeNil())
		imported := b.serviceImport(ns, "db")
		Expect(imported.Spec.Type).To(Equal(mcsv1beta1.Headless))
		Expect(imported.Spec.IPs).To(BeEmpty())
		Expect(read[corev1.Service](b, ns, model.DerivedName("db")).Spec.ClusterIP).To(Equal(corev1.ClusterIPNone))
		Expect(b.derivedSlices(ns, "db")[0].Endpoints[0].Hostname).To(HaveValue(Equal("db-0")))
	})

	It("is merged with the same Service of other clusters, and conflicts are seen by all of them", func() {
		ns := newNamespace("a", "b", "c")
		clusters["a"].create(service(ns, "web"), endpoints(ns, "web", "web-a", "10.1.0.1"), export(ns, "web"))
		clusters["b"].create(service(ns, "web", func(s *corev1.Service) { s.Spec.Ports[0].Port = 8080 }),
			endpoints(ns, "web", "web-b", "10.2.0.1"), export(ns, "web"))
		key := types.NamespacedName{Namespace: ns, Name: "web"}
		for _, id := range ids {
			Eventually(func() []model.Conflict {
				seen, _ := clusters[id].agent.running.Observe(key)
				return seen.Conflicts
			}).Should(ContainElement(HaveField("Reason", mcsv1beta1.ServiceExportReasonPortConflict)), "conflicts as %s sees them", id)
		}
		Eventually(clusters["c"].backends(ns, "web")).Should(ContainElement("a/10.1.0.1"))
	})

	It("goes into the exchange of those in its scope only", func() {
		ns := newNamespace("a", "b", "c")
		a := clusters["a"]
		exported := export(ns, "web", "b")
		a.create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1"), exported)
		Eventually(clusters["b"].backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
		Expect(a.records(ns, "web")).To(Equal([]string{"record in comity-a-to-b", "slice in comity-a-to-b"}))
		Consistently(func() []string { return clusters["c"].ownedIn(ns) }).Should(BeEmpty())

		By("widening the scope: b must not lose an endpoint on the way")
		delete(exported.Annotations, model.AnnotationExportTo)
		a.annotate(exported)
		Eventually(func() []string {
			Expect(clusters["b"].backends(ns, "web")()).To(Equal([]string{"a/10.1.0.1"}))
			return clusters["c"].backends(ns, "web")()
		}).Should(Equal([]string{"a/10.1.0.1"}))
		Eventually(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"record in comity-a", "slice in comity-a"}))

		By("spoiling the scope: it must not be taken for a wider one")
		exported.Annotations = map[string]string{model.AnnotationExportTo: "b,,c"}
		a.annotate(exported)
		Eventually(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"withdrawal in comity-a"}))
		// What was done is told a moment after it was done.
		Eventually(func(g Gomega) {
			seen, _ := a.agent.running.Observe(types.NamespacedName{Namespace: ns, Name: "web"})
			g.Expect(seen.Publication).To(Equal(model.PublicationWithheld))
			g.Expect(seen.Detail).To(ContainSubstring(model.AnnotationExportTo))
		}).Should(Succeed())
	})

	It("is withdrawn when policy denies it, and stays as it is when policy cannot tell", func() {
		ns := newNamespace("a", "b")
		a, b := clusters["a"], clusters["b"]
		key := types.NamespacedName{Namespace: ns, Name: "web"}
		slice := endpoints(ns, "web", "web-x1", "10.1.0.1")
		a.create(service(ns, "web"), slice, export(ns, "web"))
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))

		a.agent.rule(key, decision.Verdict{Problem: "policies are still loading"})
		slice.Endpoints[0].Addresses = []string{"10.1.0.2"}
		Expect(a.client.Update(ctx(), slice)).To(Succeed())
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.2"}), "endpoints follow what is published")
		Expect(a.serviceImport(ns, "web")).NotTo(BeNil())

		a.agent.rule(key, decision.Verdict{Outcome: decision.Denied, Violations: []decision.Violation{{Policy: "p", Message: "no"}}})
		for _, c := range []*cluster{a, b} {
			Eventually(func() []string { return c.ownedIn(ns) }).Should(Equal([]string{"*v1.Service " + model.DerivedName("web")}), "it keeps its place and its address")
		}
		Eventually(func() model.Publication {
			seen, _ := a.agent.running.Observe(key)
			return seen.Publication
		}).Should(Equal(model.PublicationWithheld))
		Expect(a.records(ns, "web")).To(Equal([]string{"withdrawal in comity-a"}))
	})

	// There is no webhook here that would have compared them.
	It("is imported once its namespace is made and is the same (FAULT 35)", func() {
		ns := newNamespace("a")
		clusters["a"].create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1"), export(ns, "web"))
		Eventually(func() []string { return clusters["a"].records(ns, "web") }).ShouldNot(BeEmpty())
		clusters["b"].create(namespaced(ns, map[string]string{model.LabelIdentity: "team", "secret": "x"}))
		Eventually(func() []model.Problem {
			seen, _ := clusters["b"].agent.running.Observe(types.NamespacedName{Namespace: ns, Name: "web"})
			return seen.Problems
		}).Should(ContainElement(HaveField("Reason", model.ReasonNamespaceMismatch)))
		Consistently(func() []string { return clusters["b"].ownedIn(ns) }).Should(BeEmpty())
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+model.LabelIdentity+`":"team"}}}`))
		Expect(clusters["a"].client.Patch(ctx(), namespaced(ns, nil), patch)).To(Succeed())
		Eventually(clusters["b"].backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
		Eventually(func() *exchangev1alpha1.NamespaceRecord {
			return read[exchangev1alpha1.NamespaceRecord](clusters["b"], "comity-b", ns)
		}).Should(HaveField("Spec.Labels", Equal(map[string]string{model.LabelIdentity: "team"})))
		Expect(clusters["a"].agent.peers.Namespace(ns)).To(HaveKeyWithValue(model.ClusterID("b"), HaveField("Presence", decision.Present)))
	})

	It("waits for its Service, and says so", func() {
		ns := newNamespace("a", "b")
		key := types.NamespacedName{Namespace: ns, Name: "web"}
		clusters["a"].create(export(ns, "web"))
		Eventually(func() string {
			seen, _ := clusters["a"].agent.running.Observe(key)
			return seen.Detail
		}).Should(ContainSubstring("does not exist"))
		clusters["a"].create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1"))
		Eventually(clusters["b"].backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
	})
})

var _ = Describe("names", func() {
	It("of which the sums collide get a derived Service each, and keep it across a restart", Serial, func() {
		ns := newNamespace("a", "b")
		names := []string{"svc-adb", "svc-bbc"}
		for i, name := range names {
			clusters["a"].create(service(ns, name), endpoints(ns, name, name+"-x1", fmt.Sprintf("10.1.0.%d", i+1)), export(ns, name))
		}
		// derived are the derived Services, each with its UID.
		derived := func(c *cluster) (out []string) {
			GinkgoHelper()
			for i, name := range names {
				Eventually(c.backends(ns, name)).Should(Equal([]string{fmt.Sprintf("a/10.1.0.%d", i+1)}))
				Eventually(func() *mcsv1beta1.ServiceImport { return c.serviceImport(ns, name) }).ShouldNot(BeNil())
				service := read[corev1.Service](c, ns, c.serviceImport(ns, name).Annotations[model.AnnotationDerivedName])
				Expect(service).To(HaveValue(HaveField("Labels", HaveKeyWithValue(model.LabelServiceName, name))))
				for _, slice := range c.derivedSlices(ns, name) {
					Expect(slice.Labels).To(HaveKeyWithValue(discoveryv1.LabelServiceName, service.Name))
				}
				out = append(out, service.Name+" "+string(service.UID))
			}
			return out
		}
		for _, id := range []model.ClusterID{"a", "b"} {
			found := derived(clusters[id])
			Expect(found[0]).NotTo(Equal(found[1]))
			Expect(found).To(ContainElement(HavePrefix(model.DerivedName("svc-adb") + " ")))
		}
		b := clusters["b"]
		before := derived(b)
		b.restart(ns, names...)
		Expect(derived(b)).To(Equal(before))
	})

	It("that a foreign Service has are left to it, and that is told", func() {
		ns := newNamespace("a", "b")
		b := clusters["b"]
		// Made by hand, with our labels and the very spec that we would apply.
		foreign := service(ns, model.DerivedName("web"), func(s *corev1.Service) {
			s.Labels = map[string]string{model.LabelServiceName: "web", "app.kubernetes.io/managed-by": "comity"}
		})
		b.create(foreign)
		clusters["a"].create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1"), export(ns, "web"))
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
		Eventually(func() *mcsv1beta1.ServiceImport { return b.serviceImport(ns, "web") }).ShouldNot(BeNil())
		Expect(b.serviceImport(ns, "web").Annotations).To(HaveKeyWithValue(model.AnnotationDerivedName, model.AlternateDerivedName("web")))
		Expect(read[corev1.Service](b, ns, foreign.Name).ResourceVersion).To(Equal(foreign.ResourceVersion))
		Eventually(func() []model.Problem {
			seen, _ := b.agent.running.Observe(types.NamespacedName{Namespace: ns, Name: "web"})
			return seen.Problems
		}).Should(ContainElement(HaveField("Reason", model.ReasonNameTaken)))
	})

	It("that foreign slices have are left to them, that is told, and one that gets free is used", func() {
		ns := newNamespace("a", "b")
		b, derived := clusters["b"], model.DerivedName("web")
		foreign := []*discoveryv1.EndpointSlice{
			endpoints(ns, "mine", model.SliceName(derived, true, "a", "web-x1"), "10.2.0.1"), endpoints(ns, "mine", model.SliceName(derived, false, "a", "web-x1"), "10.2.0.2"),
		}
		for _, s := range foreign {
			s.Labels = nil
			b.create(s)
		}
		clusters["a"].create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1"), export(ns, "web"))
		problems := func() []model.Problem {
			seen, _ := b.agent.running.Observe(types.NamespacedName{Namespace: ns, Name: "web"})
			return seen.Problems
		}
		Eventually(problems).Should(ContainElement(And(HaveField("Reason", model.ReasonNameTaken), HaveField("Cluster", model.ClusterID("a")))))
		Consistently(b.backends(ns, "web")).Should(BeEmpty())
		for _, s := range foreign {
			Expect(read[discoveryv1.EndpointSlice](b, ns, s.Name).ResourceVersion).To(Equal(s.ResourceVersion))
		}
		Expect(b.client.Delete(ctx(), foreign[1])).To(Succeed())
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
		Eventually(problems).ShouldNot(ContainElement(HaveField("Cluster", model.ClusterID("a"))))
	})

	It("of foreign ServiceImports are left to them, and that is told", func() {
		ns := newNamespace("a", "b")
		b := clusters["b"]
		foreign := &mcsv1beta1.ServiceImport{Spec: mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Port: 80}}}}
		foreign.Namespace, foreign.Name = ns, "web"
		b.create(foreign)
		clusters["a"].create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1"), export(ns, "web"))
		Eventually(func() []model.Problem {
			seen, _ := b.agent.running.Observe(types.NamespacedName{Namespace: ns, Name: "web"})
			return seen.Problems
		}).Should(ContainElement(HaveField("Reason", model.ReasonForeignImport)))
		Consistently(func() string { return b.serviceImport(ns, "web").ResourceVersion }).Should(Equal(foreign.ResourceVersion))
	})
})

var _ = Describe("a record that something else changed", func() {
	It("is as it was, without what was added to its lists and maps", func() {
		ns := newNamespace("a", "b")
		a, b := clusters["a"], clusters["b"]
		a.create(service(ns, "web"), endpoints(ns, "web", "web-a", "10.1.0.1"), export(ns, "web"))
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
		published := func() exchangev1alpha1.ExportRecordSpec {
			spec := a.record("comity-a", ns, "web").Spec
			spec.ExportVersion = "" // of the export, whose status is written meanwhile
			return spec
		}
		before := published()
		a.patch(a.record("comity-a", ns, "web"), `{"spec":{"slices":["web-a","another"],"labels":{"team":"x"},"namespace":{"labels":{"id":"x"}},"sessionAffinityConfig":{"clientIP":{"timeoutSeconds":9}}}}`)
		Eventually(published).Should(Equal(before))
		Eventually(func() map[string]string { return read[mcsv1beta1.ServiceImport](b, ns, "web").Labels }).ShouldNot(HaveKey("team"))
		Consistently(func() string { return a.record("comity-a", ns, "web").ResourceVersion }, "1s").
			Should(Equal(a.record("comity-a", ns, "web").ResourceVersion), "it is not written again and again")
	})
})
