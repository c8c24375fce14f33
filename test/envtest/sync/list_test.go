// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	testclusters "github.com/comity-mcs/comity/test/clusters"
)

// The table of imports is tested row by row in sync/decide, with an oracle in
// test/scenario and at random in test/simulator. These specs are about what only an API
// server shows: where the list is stored, and what becomes of it when users, restores
// and definitions change or delete the objects that it is on.

func (c *cluster) derived(namespace, name string) *corev1.Service {
	return read[corev1.Service](c, namespace, model.DerivedName(name))
}

// address is the clusterset IP.
func (c *cluster) address(namespace, name string) string {
	GinkgoHelper()
	service := c.derived(namespace, name)
	Expect(service).NotTo(BeNil())
	return service.Spec.ClusterIP
}

// order shows the list on the derived Service: each cluster, and why it is not used.
func (c *cluster) order(namespace, name string) func() string {
	return func() string {
		if service := c.derived(namespace, name); service != nil {
			return orderOf(service)
		}
		return "no derived Service"
	}
}

func orderOf(o client.Object) string {
	list, err := model.ParseList(o.GetAnnotations()[model.AnnotationList])
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, e := range list.Entries {
		text := string(e.Cluster)
		if e.Absent != "" {
			text += " " + string(e.Absent)
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// isComplete waits until an import has this order, with the list on both objects.
func (c *cluster) isComplete(namespace, name, order string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		imported, service := c.serviceImport(namespace, name), c.derived(namespace, name)
		g.Expect(imported).NotTo(BeNil())
		g.Expect(service).NotTo(BeNil())
		g.Expect(orderOf(service)).To(Equal(order))
		g.Expect(imported.Annotations).To(HaveKeyWithValue(model.AnnotationList, service.Annotations[model.AnnotationList]))
		g.Expect(imported.Spec.IPs).To(Equal([]string{service.Spec.ClusterIP}))
	}).Should(Succeed(), "%s/%s in cluster %s", namespace, name, c.id)
}

// condition is that of a ServiceImport: status, reason and message; empty if it has none.
func (c *cluster) condition(namespace, name, typ string) func() string {
	return func() string {
		if imported := c.serviceImport(namespace, name); imported != nil {
			if found := meta.FindStatusCondition(imported.Status.Conditions, typ); found != nil {
				return string(found.Status) + "/" + found.Reason + ": " + found.Message
			}
		}
		return ""
	}
}

// restart ends the agent and starts another one, which has nothing to write in the
// namespace once it worked on the imports there.
func (c *cluster) restart(namespace string, names ...string) {
	GinkgoHelper()
	c.quiet()
	c.stop()
	c.start()
	for _, name := range names {
		c.looked(namespace, name)
	}
	Consistently(func() []string { return c.agent.writer.written() }).ShouldNot(ContainElement(ContainSubstring(" "+namespace+"/")), "writes of the restarted agent of %s", c.id)
}

// quiet waits until the agent wrote nothing for a moment.
func (c *cluster) quiet() {
	GinkgoHelper()
	last := int64(-1)
	Eventually(func() bool {
		now := c.agent.writer.count.Load()
		isQuiet := now == last
		last = now
		return isQuiet
	}, soon, settled).Should(BeTrue())
}

// hostile publishes in the exchange of c, of which the agent is stopped, what no
// ServiceExport could: an export that claims to be from 2020.
func (c *cluster) hostile(namespace, name string, change func(*exchangev1alpha1.ExportRecordSpec)) *exchangev1alpha1.ExportRecord {
	GinkgoHelper()
	record := &exchangev1alpha1.ExportRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: model.ExchangeNamespace(c.id), Name: model.RecordName(namespace, name)},
		Spec: exchangev1alpha1.ExportRecordSpec{
			Service:           exchangev1alpha1.ServiceReference{Namespace: namespace, Name: name},
			ExportUID:         "hostile",
			ExportedAt:        metav1.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
			ServiceProperties: model.ServiceProperties{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}, SessionAffinity: corev1.ServiceAffinityNone},
			Slices:            []string{name + "-x1"},
			Namespace:         &exchangev1alpha1.NamespaceRecordSpec{},
		},
	}
	change(&record.Spec)
	slice := endpoints(record.Namespace, name, model.RecordSliceName(namespace, name+"-x1"), "10.3.0.1")
	slice.Labels = map[string]string{
		"service.kubernetes.io/headless": "", model.LabelExportNamespace: namespace, model.LabelExportName: name,
		"endpointslice.kubernetes.io/managed-by": model.ManagedBy,
	}
	slice.Annotations = map[string]string{model.AnnotationSourceSlice: name + "-x1"}
	c.create(slice, record)
	DeferCleanup(func() { c.delete(slice, record) })
	return record
}

func toHeadless(spec *exchangev1alpha1.ExportRecordSpec) {
	spec.Type, spec.Ports, spec.SessionAffinity = mcsv1beta1.Headless, nil, ""
}

func toSticky(spec *exchangev1alpha1.ExportRecordSpec) {
	spec.SessionAffinity = corev1.ServiceAffinityClientIP
}

// definition is the CustomResourceDefinition of ServiceImports, as the MCS API has it.
func importDefinition() *apiextensionsv1.CustomResourceDefinition {
	GinkgoHelper()
	for _, text := range testclusters.MCSDefinitions() {
		out := &apiextensionsv1.CustomResourceDefinition{}
		Expect(yaml.Unmarshal(text, out)).To(Succeed())
		if out.Spec.Names.Kind == mcsv1beta1.ServiceImportKindName {
			return out
		}
	}
	Fail("the MCS API defines no ServiceImports")
	return nil
}

// In each of these imports, c is a member that dates its exports back: by age it would
// come first, by the list it comes last.
var _ = Describe("the list of an import", Ordered, Serial, func() {
	var (
		a, b, c *cluster
		ns, ip  string
		web     *mcsv1beta1.ServiceExport
	)
	const list = "a, b, c"
	BeforeAll(func() {
		a, b, c = clusters["a"], clusters["b"], clusters["c"]
		ns = newNamespace("a", "b", "c")
		c.stop()
		DeferCleanup(func() {
			c.start()
			c.awaitPeers()
			By("confirming that all of c that is missing is gone")
			for _, importer := range []*cluster{a, b} {
				Eventually(importer.order(ns, "web")).Should(Equal("a, b, c Missing"))
				Eventually(importer.order(ns, "pay")).Should(Or(Equal("a, c Missing"), Equal("c Missing, a")))
				importer.patch(&exchangev1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, fmt.Sprintf(`{"spec":{"confirmMissingBefore":%q}}`, time.Now().UTC().Format(time.RFC3339)))
				Eventually(importer.order(ns, "web")).Should(Equal("a, b"))
				Eventually(importer.order(ns, "pay")).Should(Equal("a"))
			}
		})
		web = export(ns, "web")
		a.create(service(ns, "web"), endpoints(ns, "web", "web-a", "10.1.0.1"), web)
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
		b.create(service(ns, "web"), endpoints(ns, "web", "web-b", "10.2.0.1"), export(ns, "web"))
		b.isComplete(ns, "web", "a, b")
		a.isComplete(ns, "web", "a, b")
		c.hostile(ns, "web", toSticky)
		b.isComplete(ns, "web", list)
		a.isComplete(ns, "web", list)
		ip = b.address(ns, "web")
	})
	AfterEach(func() {
		b.isComplete(ns, "web", list)
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1", "b/10.2.0.1", "c/10.3.0.1"}))
		Expect(b.serviceImport(ns, "web").Spec.SessionAffinity).To(Equal(corev1.ServiceAffinityNone), "c decides nothing")
	})

	It("is what a restarted agent goes by, which writes nothing", func() {
		b.restart(ns, "web")
		Expect(b.address(ns, "web")).To(Equal(ip))
	})

	It("FAULT 39: keeps the place of the deciding ServiceExport that is deleted and created again", func() {
		Eventually(b.condition(ns, "web", "TakeoverHeld")).Should(And(HavePrefix("True/TakeoverHeld: "), ContainSubstring("kubectl comity confirm takeover "+ns+"/web --from c")))
		before := b.serviceImport(ns, "web").Spec
		a.delete(web)
		Eventually(b.order(ns, "web")).Should(Equal("a Ended, b, c"))
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"b/10.2.0.1", "c/10.3.0.1"}))
		b.restart(ns, "web")
		Expect(b.serviceImport(ns, "web").Spec).To(Equal(before))
		web = export(ns, "web")
		a.create(web)
		b.isComplete(ns, "web", list)
		a.isComplete(ns, "web", list)
		Expect(b.serviceImport(ns, "web").Spec).To(Equal(before))
		Expect(b.address(ns, "web")).To(Equal(ip))
		Eventually(b.condition(ns, "web", "TakeoverHeld")).Should(HavePrefix("True/TakeoverHeld: "), "it still waits")
	})

	It("comes back from the ServiceImport when a user deletes the derived Service", func() {
		b.delete(b.derived(ns, "web"))
		b.isComplete(ns, "web", list)
		ip = b.address(ns, "web") // nobody but a user can change it
	})

	It("comes back from the derived Service when a user deletes the ServiceImport", func() {
		b.delete(b.serviceImport(ns, "web"))
		b.isComplete(ns, "web", list)
		Expect(b.address(ns, "web")).To(Equal(ip))
	})

	It("comes back from the derived Service with the definition of ServiceImports, and the clusterset IP stays", func() {
		definition := importDefinition()
		b.delete(definition)
		Eventually(func() any {
			return read[apiextensionsv1.CustomResourceDefinition](b, "", definition.Name)
		}).Should(BeNil())
		Expect(b.order(ns, "web")()).To(Equal(list))
		b.create(importDefinition())
		b.isComplete(ns, "web", list)
		Expect(b.address(ns, "web")).To(Equal(ip))
	})

	DescribeTable("that a user makes unreadable is that of the other object",
		func(of func() client.Object) {
			b.patch(of(), fmt.Sprintf(`{"metadata":{"annotations":{%q:"{"}}}`, model.AnnotationList))
			b.isComplete(ns, "web", list)
			b.patch(of(), fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, model.AnnotationList))
			b.isComplete(ns, "web", list)
			Expect(b.address(ns, "web")).To(Equal(ip))
		},
		Entry("on the derived Service", func() client.Object { return b.derived(ns, "web") }),
		Entry("on the ServiceImport", func() client.Object { return b.serviceImport(ns, "web") }),
	)

	It("FAULT 40: has a newcomer last that is dated years back, two minutes after the list formed or earlier", func() {
		a.create(service(ns, "pay"), endpoints(ns, "pay", "pay-a", "10.1.0.1"), export(ns, "pay"))
		b.isComplete(ns, "pay", "a")
		address := b.address(ns, "pay")
		record := c.hostile(ns, "pay", toHeadless)
		b.isComplete(ns, "pay", "a, c")
		a.isComplete(ns, "pay", "a, c")
		Eventually(b.condition(ns, "pay", "TakeoverHeld")).Should(HavePrefix("True/TakeoverHeld: "))
		Expect(b.serviceImport(ns, "pay").Spec.Type).To(Equal(mcsv1beta1.ClusterSetIP))
		b.restart(ns, "pay")
		Expect(b.address(ns, "pay")).To(Equal(address))

		By("the namespace's owner letting it decide in b, by an annotation")
		c.patch(record, `{"spec":{"type":"ClusterSetIP","ports":[{"name":"http","protocol":"TCP","port":80}],"sessionAffinity":"ClientIP"}}`)
		Eventually(b.condition(ns, "pay", "TakeoverHeld")).Should(ContainSubstring("sessionAffinity"))
		b.patch(b.serviceImport(ns, "pay"), fmt.Sprintf(`{"metadata":{"annotations":{%q:"c/hostile"}}}`, model.AnnotationConfirmTakeover))
		b.isComplete(ns, "pay", "c, a")
		Eventually(func() corev1.ServiceAffinity { return b.serviceImport(ns, "pay").Spec.SessionAffinity }).Should(Equal(corev1.ServiceAffinityClientIP))
		Eventually(b.condition(ns, "pay", "TakeoverHeld")).Should(BeEmpty())
		Expect(b.address(ns, "pay")).To(Equal(address))
		b.restart(ns, "pay")
		Expect(a.order(ns, "pay")()).To(Equal("a, c"), "each cluster has its own list")
	})

	It("FAULT 49: says of each takeover that it is held, and counts them on the Peer", func() {
		const count = 3
		for n := range count {
			name := fmt.Sprintf("held-%d", n)
			a.create(service(ns, name), export(ns, name))
		}
		for n := range count {
			Eventually(b.order(ns, fmt.Sprintf("held-%d", n))).Should(Equal("a"))
		}
		for n := range count {
			c.hostile(ns, fmt.Sprintf("held-%d", n), toSticky)
		}
		for n := range count {
			Eventually(b.condition(ns, fmt.Sprintf("held-%d", n), "TakeoverHeld")).Should(HavePrefix("True/TakeoverHeld: "), "held-%d", n)
		}
		Eventually(func(g Gomega) {
			found := read[exchangev1alpha1.Peer](b, "", "c")
			g.Expect(found.Status.Exports.Waiting).To(BeEquivalentTo(count + 1)) // and web
			complete := meta.FindStatusCondition(found.Status.Conditions, exchangev1alpha1.PeerComplete)
			g.Expect(complete).To(HaveValue(And(HaveField("Status", metav1.ConditionFalse),
				HaveField("Message", ContainSubstring("kubectl comity confirm takeover --all --from c")))))
		}).Should(Succeed())
	})
})

var _ = Describe("an import of which nothing is served", func() {
	It("keeps its list and its clusterset IP while the Service of the export is missing", func() {
		ns := newNamespace("a", "b")
		a, b := clusters["a"], clusters["b"]
		web := service(ns, "web")
		slice := endpoints(ns, "web", "web-a", "10.1.0.1")
		a.create(web, slice, export(ns, "web"))
		b.isComplete(ns, "web", "a")
		ip := b.address(ns, "web")
		a.delete(web, slice)
		for _, c := range []*cluster{a, b} {
			Eventually(c.order(ns, "web")).Should(Equal("a Suspended"))
			Eventually(func() []string { return c.ownedIn(ns) }).Should(Equal([]string{"*v1.Service " + model.DerivedName("web")}))
		}
		Expect(a.record("comity-a", ns, "web").Spec.Suspended).To(BeTrue())
		b.restart(ns, "web")
		pass(2 * time.Hour) // the statement is not collected while the ServiceExport exists
		Consistently(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"withdrawal in comity-a"}))
		a.create(service(ns, "web"), endpoints(ns, "web", "web-a", "10.1.0.1"))
		for _, c := range []*cluster{a, b} {
			c.isComplete(ns, "web", "a")
			Eventually(c.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
		}
		Expect(b.address(ns, "web")).To(Equal(ip))
	})

	It("forms again if a user deletes both objects", func() {
		ns := newNamespace("a", "b")
		a, b := clusters["a"], clusters["b"]
		a.create(service(ns, "web"), endpoints(ns, "web", "web-a", "10.1.0.1"), export(ns, "web"))
		b.isComplete(ns, "web", "a")
		b.stop()
		b.delete(b.derived(ns, "web"), b.serviceImport(ns, "web"))
		b.start()
		b.awaitPeers()
		b.isComplete(ns, "web", "a")
	})

	It("drops an export that ended after a minute, and at once if it was the last", func() {
		ns := newNamespace("a", "b")
		a, b := clusters["a"], clusters["b"]
		first, second := export(ns, "web"), export(ns, "web")
		a.create(service(ns, "web"), endpoints(ns, "web", "web-a", "10.1.0.1"), first)
		b.isComplete(ns, "web", "a")
		b.create(service(ns, "web"), endpoints(ns, "web", "web-b", "10.2.0.1"), second)
		a.isComplete(ns, "web", "a, b")
		a.delete(first)
		for _, c := range []*cluster{a, b} {
			Eventually(c.order(ns, "web")).Should(Equal("a Ended, b"))
		}
		pass(time.Minute)
		for _, c := range []*cluster{a, b} {
			c.isComplete(ns, "web", "b")
			Expect(c.backends(ns, "web")()).To(Equal([]string{"b/10.2.0.1"}))
		}
		b.delete(second)
		for _, c := range []*cluster{a, b} {
			Eventually(func() []string { return c.ownedIn(ns) }).Should(BeEmpty())
		}
	})
})

var _ = Describe("FAULT 43: a restored record", func() {
	// restored is the record of an export after a restore of a's API server.
	restored := func(ns string, patch string) {
		GinkgoHelper()
		a, b := clusters["a"], clusters["b"]
		a.create(service(ns, "web"), endpoints(ns, "web", "web-a", "10.1.0.1"), export(ns, "web"))
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
		a.stop()
		a.patch(a.record("comity-a", ns, "web"), patch)
		a.start()
		a.awaitPeers()
		a.looked(ns, "web")
	}

	DescribeTable("is still the agent's own, and withdrawn with its ServiceExport", func(patch string) {
		ns := newNamespace("a", "b")
		restored(ns, patch)
		Expect(clusters["b"].backends(ns, "web")()).To(Equal([]string{"a/10.1.0.1"}))
		clusters["a"].delete(export(ns, "web"))
		Eventually(func() []string { return clusters["a"].records(ns, "web") }).Should(Equal([]string{"withdrawal in comity-a"}))
		for _, c := range []*cluster{clusters["a"], clusters["b"]} {
			Eventually(func() []string { return c.ownedIn(ns) }).Should(BeEmpty())
		}
	},
		Entry("without managedFields", `{"metadata":{"managedFields":[{}]}}`),
		Entry("with other labels", `{"metadata":{"managedFields":[{}],"labels":{"app.kubernetes.io/managed-by":"velero"}}}`),
	)
})
