// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
)

// admin adds a second port.
func admin(s *corev1.Service) {
	s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "admin", Port: 90, Protocol: corev1.ProtocolTCP})
}

// withAdmin is a slice of such a Service.
func withAdmin(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr.To("admin"), Port: ptr.To[int32](9090), Protocol: ptr.To(corev1.ProtocolTCP)})
	return s
}

func sharing(namespace, name, ports string) *mcsv1beta1.ServiceExport {
	e := export(namespace, name)
	e.Annotations = map[string]string{model.AnnotationExportPorts: ports}
	return e
}

// publishedPorts are those of the record and of the copies of slices of an export; none
// if it is not published.
func (c *cluster) publishedPorts(namespace, name string) []string {
	GinkgoHelper()
	out := []string{}
	if record := c.record("comity-a", namespace, name); record != nil {
		for _, p := range record.Spec.Ports {
			out = append(out, "record "+p.Name)
		}
	}
	var copies discoveryv1.EndpointSliceList
	Expect(c.client.List(ctx(), &copies, client.MatchingLabels{model.LabelExportNamespace: namespace, model.LabelExportName: name})).To(Succeed())
	for _, s := range copies.Items {
		for _, p := range s.Ports {
			out = append(out, "slice "+*p.Name)
		}
	}
	slices.Sort(out)
	return out
}

// importedPorts are those of the ServiceImport, the derived Service and its slices.
func (c *cluster) importedPorts(namespace, name string) []string {
	GinkgoHelper()
	out := []string{}
	if imported := c.serviceImport(namespace, name); imported != nil {
		for _, p := range imported.Spec.Ports {
			out = append(out, "import "+p.Name)
		}
	}
	if derived := read[corev1.Service](c, namespace, model.DerivedName(name)); derived != nil {
		for _, p := range derived.Spec.Ports {
			out = append(out, "service "+p.Name)
		}
	}
	for _, s := range c.derivedSlices(namespace, name) {
		for _, p := range s.Ports {
			out = append(out, "slice "+*p.Name)
		}
	}
	slices.Sort(out)
	return out
}

var _ = Describe("An export that names its ports", func() {
	DescribeTable("shares these alone, in every cluster, and follows list and Service", func(change ...func(*corev1.Service)) {
		ns := newNamespace("a", "b")
		a, b := clusters["a"], clusters["b"]
		web := service(ns, "web", append(change, admin)...)
		exported := sharing(ns, "web", "http")
		a.create(web, withAdmin(endpoints(ns, "web", "web-x1", "10.1.0.1")), exported)
		http := []string{"import http", "service http", "slice http"}
		for _, c := range []*cluster{a, b} {
			Eventually(func() []string { return c.importedPorts(ns, "web") }).Should(Equal(http), "in cluster %s", c.id)
		}
		Expect(a.publishedPorts(ns, "web")).To(Equal([]string{"record http", "slice http"}))

		By("every port, without the annotation")
		exported.Annotations = nil
		a.annotate(exported)
		all := []string{"import admin", "import http", "service admin", "service http", "slice admin", "slice http"}
		for _, c := range []*cluster{a, b} {
			Eventually(func() []string { return c.importedPorts(ns, "web") }).Should(Equal(all), "in cluster %s", c.id)
		}

		By("one again: what stands becomes narrower")
		exported.Annotations = map[string]string{model.AnnotationExportPorts: "http"}
		a.annotate(exported)
		Eventually(func() []string { return a.publishedPorts(ns, "web") }).Should(Equal([]string{"record http", "slice http"}))
		for _, c := range []*cluster{a, b} {
			Eventually(func() []string { return c.importedPorts(ns, "web") }).Should(Equal(http), "in cluster %s", c.id)
		}

		By("the Service has the port no longer: nothing that is not named is shared")
		web.Spec.Ports[0].Name = "web"
		Expect(a.client.Update(ctx(), web)).To(Succeed())
		Eventually(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"withdrawal in comity-a"}))
		Eventually(func() string { return a.says(ns, "web") }).Should(ContainSubstring(`has no port named "http"; its ports: "web", "admin"`))
		for _, c := range []*cluster{a, b} {
			Eventually(func() []string { return c.importedPorts(ns, "web") }).Should(Equal([]string{"service http"}), "it keeps its address in cluster %s", c.id)
		}

		By("it has the port again")
		web.Spec.Ports[0].Name = "http"
		Expect(a.client.Update(ctx(), web)).To(Succeed())
		for _, c := range []*cluster{a, b} {
			Eventually(func() []string { return c.importedPorts(ns, "web") }).Should(Equal(http), "in cluster %s", c.id)
		}
	},
		Entry("of a ClusterIP Service"),
		Entry("of a headless Service", headless),
	)

	It("is published with a warning if one of its names is no port", func() {
		ns := newNamespace("a")
		a := clusters["a"]
		a.create(service(ns, "web", admin), withAdmin(endpoints(ns, "web", "web-x1", "10.1.0.1")), sharing(ns, "web", "http,metrics"))
		Eventually(func() []string { return a.publishedPorts(ns, "web") }).Should(Equal([]string{"record http", "slice http"}))
		Eventually(func() []model.Problem {
			seen, _ := a.agent.running.Observe(client.ObjectKey{Namespace: ns, Name: "web"})
			return seen.Problems
		}).Should(ContainElement(And(HaveField("Reason", model.ReasonInvalidAnnotation), HaveField("Message", ContainSubstring(`has no port named "metrics"`)))))
	})

	It("is published nowhere if the list cannot be read", func() {
		ns := newNamespace("a")
		a := clusters["a"]
		a.create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1"), sharing(ns, "web", "http,,admin"))
		Eventually(func() string { return a.says(ns, "web") }).Should(ContainSubstring(`item 2 of "http,,admin" is empty`))
		Expect(a.records(ns, "web")).To(BeEmpty())
	})

	It("loses a port while policies cannot be evaluated, and gets none", Serial, func() {
		ns := newNamespace("a")
		a := clusters["a"]
		exported := sharing(ns, "web", "http,admin")
		a.create(service(ns, "web", admin), withAdmin(endpoints(ns, "web", "web-x1", "10.1.0.1")), exported)
		Eventually(func() []string { return a.publishedPorts(ns, "web") }).Should(HaveLen(4))
		a.agent.rule(client.ObjectKeyFromObject(exported), decision.Verdict{Problem: "policies are still loading"})
		exported.Annotations[model.AnnotationExportPorts] = "http"
		a.annotate(exported)
		Eventually(func() []string { return a.publishedPorts(ns, "web") }).Should(Equal([]string{"record http", "slice http"}))
		exported.Annotations = nil
		a.annotate(exported)
		Consistently(func() []string { return a.publishedPorts(ns, "web") }).Should(Equal([]string{"record http", "slice http"}))
	})
})

var _ = Describe("An export that policies forbid to some clusters", Serial, func() {
	exclude := func(a *cluster, exported *mcsv1beta1.ServiceExport, ids ...string) {
		a.agent.rule(client.ObjectKeyFromObject(exported), decision.Verdict{
			Outcome: decision.Allowed, Excluded: ids, Violations: []decision.Violation{{Policy: "p", Message: "it stays here", Clusters: ids}},
		})
	}

	It("is withdrawn from these alone, after it was published to who remains, and published again", func() {
		ns := newNamespace("a", "b", "c")
		a, b, c := clusters["a"], clusters["b"], clusters["c"]
		exported := export(ns, "web")
		a.create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1"), exported)
		for _, reader := range []*cluster{a, b, c} {
			Eventually(reader.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}), "in cluster %s", reader.id)
		}
		destinations := func() []model.ClusterID {
			var ids []model.ClusterID
			all, _ := a.agent.running.Destinations(client.ObjectKeyFromObject(exported))
			for _, d := range all {
				ids = append(ids, d.Cluster)
			}
			return ids
		}
		Eventually(destinations).Should(Equal([]model.ClusterID{"b", "c"}))

		writes := len(a.agent.writer.written())
		exclude(a, exported, "c")
		Eventually(c.backends(ns, "web")).Should(BeEmpty())
		Eventually(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"record in comity-a-to-b", "slice in comity-a-to-b", "withdrawal in comity-a"}))
		Expect(a.agent.published(writes, ns, "web")).To(Equal([]string{
			"apply *v1.EndpointSlice comity-a-to-b/" + ns + ".web-x1", "apply *v1alpha1.ExportRecord comity-a-to-b/web." + ns,
			"apply *v1alpha1.ExportRecord comity-a/web." + ns, "delete *v1.PartialObjectMetadata comity-a/" + ns + ".web-x1",
		}), "the narrower record comes first")
		Eventually(destinations).Should(Equal([]model.ClusterID{"b"}), "Available expects c no longer")
		for _, reader := range []*cluster{a, b} {
			Consistently(reader.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}), "in cluster %s", reader.id)
		}

		By("policies that cannot be evaluated: what is published stays")
		a.agent.rule(client.ObjectKeyFromObject(exported), decision.Verdict{Problem: "policies are still loading"})
		Consistently(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"record in comity-a-to-b", "slice in comity-a-to-b", "withdrawal in comity-a"}))

		By("policies that forbid nothing any more")
		a.agent.rule(client.ObjectKeyFromObject(exported), decision.Verdict{Outcome: decision.Allowed})
		Eventually(c.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
		Eventually(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"record in comity-a", "slice in comity-a"}))
	})

	It("is withdrawn from these though the narrower record is refused", func() {
		ns := newNamespace("a")
		a := clusters["a"]
		exported := export(ns, "web")
		a.create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1"), exported)
		Eventually(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"record in comity-a", "slice in comity-a"}))
		a.refuse("comity-a-to-b")
		exclude(a, exported, "c")
		Eventually(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"slice in comity-a-to-b", "withdrawal in comity-a"}))
		Eventually(func() string { return a.says(ns, "web") }).Should(ContainSubstring("refused by a test"))
	})

	It("is published nowhere if they are all there are", func() {
		ns := newNamespace("a")
		a := clusters["a"]
		exported := export(ns, "web")
		a.create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1"), exported)
		Eventually(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"record in comity-a", "slice in comity-a"}))
		exclude(a, exported, "b", "c")
		Eventually(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"withdrawal in comity-a"}))
		Eventually(func() string { return a.says(ns, "web") }).Should(ContainSubstring("to every cluster in its scope: [p] it stays here. Refused for clusters b, c."))
	})
})
