// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/v1alpha1"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// importPolicy denies imports for which the body holds.
func importPolicy(body string) engine.Policy {
	return engine.Policy{Name: "sources", ExportPolicySpec: v1alpha1.ExportPolicySpec{Stage: v1alpha1.StageImport, Rego: fmt.Sprintf(`package comity.policies.sources

deny contains {"msg": "cluster a is not trusted here", "remedy": "Ask the administrator of b."} if {
	%s
}
`, body)}}
}

// imposes makes these the import policies of a cluster from now on.
func (c *cluster) imposes(policies ...engine.Policy) {
	c.imports = policies
	c.agent.engine.Load(policies)
	c.agent.policies.All()
}

// patch applies a merge patch to an object.
func (c *cluster) patch(o client.Object, patch string) {
	GinkgoHelper()
	Expect(c.client.Patch(ctx(), o, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

func annotated(namespace, annotation, value string) (*corev1.Namespace, string) {
	return namespaced(namespace, nil), fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, annotation, value)
}

// destinations are what a knows of who imports its export: cluster, reason, and
// whether it is imported.
func destinations(from *cluster, key types.NamespacedName) func() []string {
	return func() []string {
		out := []string{}
		found, _ := from.agent.running.Destinations(key)
		for _, d := range found {
			out = append(out, fmt.Sprintf("%s %s %t", d.Cluster, d.Reason, d.Imported))
		}
		return out
	}
}

// problems are reasons and clusters of what an agent found of an import.
func (c *cluster) problems(key types.NamespacedName) func() []string {
	return func() []string {
		out := []string{}
		seen, _ := c.agent.running.Observe(key)
		for _, p := range seen.Problems {
			out = append(out, p.Reason+" "+string(p.Cluster))
		}
		return out
	}
}

// eventsAbout are the reasons of the events with this name in a namespace, each once.
func (c *cluster) eventsAbout(key types.NamespacedName) func() []string {
	return func() []string {
		GinkgoHelper()
		var list eventsv1.EventList
		Expect(c.client.List(ctx(), &list, client.InNamespace(key.Namespace))).To(Succeed())
		out := []string{}
		for _, e := range list.Items {
			if text := e.Regarding.Kind + " " + e.Reason; e.Regarding.Name == key.Name && !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
		return out
	}
}

var _ = Describe("an import policy", Serial, func() {
	var (
		a, b *cluster
		ns   string
		key  types.NamespacedName
	)
	BeforeEach(func() {
		a, b = clusters["a"], clusters["b"]
		ns = newNamespace("a", "b", "c")
		key = types.NamespacedName{Namespace: ns, Name: "web"}
		DeferCleanup(func() { b.imposes() })
	})
	exported := func() {
		GinkgoHelper()
		for _, id := range []model.ClusterID{"a", "c"} {
			address := map[model.ClusterID]string{"a": "10.1.0.1", "c": "10.3.0.1"}[id]
			clusters[id].create(service(ns, "web"), endpoints(ns, "web", "web-"+string(id), address), export(ns, "web"))
		}
	}

	It("keeps a source out, which the exporter learns, and lets it in again", func() {
		exported()
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1", "c/10.3.0.1"}))
		b.imposes(importPolicy(`input.source.cluster == "a"`))
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"c/10.3.0.1"}))
		Eventually(b.problems(key)).Should(Equal([]string{"PolicyDenied a"}))
		Eventually(destinations(a, key)).Should(ContainElement("b PolicyDenied false"))
		found, _ := a.agent.running.Destinations(key)
		Expect(found).To(ContainElement(And(HaveField("Cluster", model.ClusterID("b")), HaveField("Message",
			"the export of cluster a is not imported: [sources] cluster a is not trusted here. Remedy: Ask the administrator of b."))))
		Eventually(destinations(clusters["c"], key)).Should(ContainElement("b Imported true"))
		Eventually(b.eventsAbout(key)).Should(ContainElement("ServiceImport PolicyDenied"))
		// Cluster c has no such policy.
		Expect(clusters["c"].backends(ns, "web")()).To(ContainElement("a/10.1.0.1"))

		b.imposes(importPolicy(`input.source.cluster == "nobody"`))
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1", "c/10.3.0.1"}))
		Eventually(destinations(a, key)).Should(ContainElement("b Imported true"))
		Eventually(b.problems(key)).Should(BeEmpty())
	})

	It("keeps every source out before anything was imported, and says so by an event", func() {
		b.imposes(importPolicy(`input.source.cluster != "b"`))
		exported()
		Eventually(destinations(a, key)).Should(ContainElement("b PolicyDenied false"))
		Eventually(b.eventsAbout(key)).Should(ContainElement("ServiceImport PolicyDenied"))
		Consistently(func() []string { return b.ownedIn(ns) }).Should(BeEmpty())
	})

	It("does not limit what the cluster exports itself", func() {
		b.imposes(importPolicy("true"))
		b.create(service(ns, "web"), endpoints(ns, "web", "web-b", "10.2.0.1"), export(ns, "web"))
		exported()
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"b/10.2.0.1"}))
		Eventually(destinations(a, key)).Should(ContainElement("b PolicyDenied false"))
	})

	It("is evaluated again when the labels of the source's Peer, or of the Namespace, change", func() {
		exported()
		b.imposes(importPolicy(`input.source.labels.tier == "test"; not input.namespace.metadata.labels.open`))
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1", "c/10.3.0.1"}))
		source := &exchangev1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		b.patch(source, `{"metadata":{"labels":{"tier":"test"}}}`)
		DeferCleanup(func() { b.patch(source, `{"metadata":{"labels":{"tier":null}}}`) })
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"c/10.3.0.1"}))
		b.patch(namespaced(ns, nil), `{"metadata":{"labels":{"open":"true"}}}`)
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1", "c/10.3.0.1"}))
		b.patch(namespaced(ns, nil), `{"metadata":{"labels":{"open":null}}}`)
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"c/10.3.0.1"}))
		b.patch(source, `{"metadata":{"labels":{"tier":"prod"}}}`)
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1", "c/10.3.0.1"}))
	})

	It("with existing: Keep spares what is imported, and keeps out what comes later", func() {
		exported()
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1", "c/10.3.0.1"}))
		keep := importPolicy(`input.source.cluster == "a"`)
		keep.Existing = v1alpha1.Keep
		b.imposes(keep)
		Eventually(b.problems(key)).Should(Equal([]string{"PolicyWarning "}))
		Consistently(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1", "c/10.3.0.1"}))
		Expect(destinations(a, key)()).To(ContainElement("b Imported true"))

		By("deleting and creating the ServiceExport, within a minute and later")
		a.delete(export(ns, "web"))
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"c/10.3.0.1"}))
		a.create(export(ns, "web"))
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1", "c/10.3.0.1"}))
		a.delete(export(ns, "web"))
		Eventually(b.order(ns, "web")).Should(Equal("a Ended, c"))
		pass(time.Minute)
		Eventually(b.order(ns, "web")).Should(Equal("c"))
		a.create(export(ns, "web"))
		Eventually(destinations(a, key)).Should(ContainElement("b PolicyDenied false"))
		Expect(b.backends(ns, "web")()).To(Equal([]string{"c/10.3.0.1"}))
	})

	It("FAULT 34: that an upgrade broke leaves what stands, and lets nothing new in", func() {
		b.imposes(importPolicy(`input.source.cluster == "nobody"`))
		exported()
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1", "c/10.3.0.1"}))
		b.stop()
		b.imports = []engine.Policy{importPolicy(`input.gone == "a"`)}
		b.start()
		b.awaitPeers()
		later := types.NamespacedName{Namespace: ns, Name: "later"}
		a.create(service(ns, "later"), endpoints(ns, "later", "later-a", "10.1.0.2"), export(ns, "later"))
		Eventually(b.problems(later)).Should(Equal([]string{"NotEvaluated a"}))
		Eventually(b.problems(key)).Should(Equal([]string{"NotEvaluated a", "NotEvaluated c"}))
		Eventually(destinations(a, later)).Should(ContainElement("b NotEvaluated false"))
		Eventually(destinations(a, key)).Should(ContainElement("b NotEvaluated true"))
		Consistently(func() []string { return append(b.backends(ns, "web")(), b.backends(ns, "later")()...) }).Should(Equal([]string{"a/10.1.0.1", "c/10.3.0.1"}))

		b.imposes(importPolicy(`input.source.cluster == "nobody"`))
		Eventually(b.backends(ns, "later")).Should(Equal([]string{"a/10.1.0.2"}))
		Eventually(b.problems(key)).Should(BeEmpty())
	})

	It("keeps out a source that cannot be read, and another that allows it keeps what stands", func() {
		exported()
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1", "c/10.3.0.1"}))
		b.stop()
		a.proxy.cut()
		DeferCleanup(func() { a.proxy.mend(); b.awaitPeers() })
		b.imports = []engine.Policy{importPolicy(`not input.export.labels.owner`)}
		b.start()
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}), "of a no more is known than its name")
		Consistently(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
		b.imposes(importPolicy(`input.source.cluster == "a"`))
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"c/10.3.0.1"}))
	})
})

var _ = Describe("comity.dev/import-from on a Namespace", func() {
	It("lets the listed clusters in alone, and nothing new while it cannot be read", func() {
		ns := newNamespace("a", "b", "c")
		key := types.NamespacedName{Namespace: ns, Name: "web"}
		a, b := clusters["a"], clusters["b"]
		for _, c := range []*cluster{a, clusters["c"]} {
			c.create(service(ns, "web"), endpoints(ns, "web", "web-"+string(c.id), map[model.ClusterID]string{"a": "10.1.0.1", "c": "10.3.0.1"}[c.id]), export(ns, "web"))
		}
		both := []string{"a/10.1.0.1", "c/10.3.0.1"}
		Eventually(b.backends(ns, "web")).Should(Equal(both))
		importFrom := func(value string) { b.patch(annotated(ns, model.AnnotationImportFrom, value)) }
		importFrom(`"c"`)
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"c/10.3.0.1"}))
		Eventually(destinations(a, key)).Should(ContainElement("b PolicyDenied false"))
		Eventually(b.eventsAbout(key)).Should(ContainElement("ServiceImport PolicyDenied"))

		importFrom(`"c,,a"`)
		Eventually(b.problems(key)).Should(Equal([]string{"NotEvaluated a", "NotEvaluated c"}))
		Consistently(b.backends(ns, "web")).Should(Equal([]string{"c/10.3.0.1"}))
		Eventually(destinations(a, key)).Should(ContainElement("b NotEvaluated false"))

		importFrom(`"c, a"`)
		Eventually(b.backends(ns, "web")).Should(Equal(both))
		importFrom(`"a"`)
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
		importFrom("null")
		Eventually(b.backends(ns, "web")).Should(Equal(both))
		Eventually(destinations(a, key)).Should(ContainElement("b Imported true"))
	})
})
