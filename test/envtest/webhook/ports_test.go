// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
)

// withPorts is a Service with ports of these names, numbered from 80.
func withPorts(namespace, name string, ports ...string) *corev1.Service {
	s := clusterIP(namespace, name)
	s.Spec.Ports = nil
	for i, port := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: port, Port: int32(80 + i)})
	}
	return s
}

func sharing(version, namespace, name, ports string) *unstructured.Unstructured {
	object := export(version, namespace, name)
	object.SetAnnotations(map[string]string{model.AnnotationExportPorts: ports})
	return object
}

// exporters are the other members as package conflict sees them: what they export is
// what a test says.
type exporters struct {
	mu      sync.Mutex
	exports []model.Export
}

// Read implements conflict.Peers.
func (e *exporters) Read(key types.NamespacedName, _ bool) []exchange.Published {
	e.mu.Lock()
	defer e.mu.Unlock()
	read := exchange.Published{Member: model.Member{ID: "cluster-2", Synced: true}, Known: true}
	for i := range e.exports {
		if e.exports[i].Key == key {
			read.Export = &e.exports[i]
		}
	}
	return []exchange.Published{read}
}

// Export adds an export until the end of the test.
func (e *exporters) Export(export model.Export) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.exports = append(e.exports, export)
	DeferCleanup(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.exports = nil
	})
}

var _ = Describe("The ports of an export", func() {
	for _, version := range versions {
		DescribeTable("are refused with one clear message, in "+version,
			func(ctx SpecContext, ports, says string) {
				namespace := newNamespace(ctx, nil)
				Expect(k8s.Create(ctx, withPorts(namespace, "web", "http", "admin"))).To(Succeed())
				// At once: the Service is younger than what any cache may hold.
				err := k8s.Create(ctx, sharing(version, namespace, "web", ports))
				Expect(apierrors.IsBadRequest(err)).To(BeTrue(), "%v", err)
				Expect(strings.Split(err.Error(), "\n")).To(HaveLen(1), "one mistake, one line")
				Expect(err).To(MatchError(And(
					ContainSubstring("ServiceExport "+namespace+"/web, annotation comity.dev/export-ports: "),
					ContainSubstring(says), ContainSubstring("Remedy: "))))
			},
			Entry("when the Service has no port of a name", "http,metrics", `has no port named "metrics"; its ports: "http", "admin"`),
			Entry("when they name nothing", "", "names no port"),
			Entry("when an item is empty", "http,,admin", `item 2 of "http,,admin" is empty`),
			Entry("when a name is repeated", "http,http", `repeats "http"`),
			Entry("when an item is no name", "http:80", `"http:80", which names no port`),
		)
	}

	It("may name ports of a Service that comes later, and stay when it has others", func(ctx SpecContext) {
		namespace := newNamespace(ctx, nil)
		Expect(k8s.Create(ctx, sharing("v1beta1", namespace, "web", "http"))).To(Succeed())
		Expect(k8s.Create(ctx, withPorts(namespace, "web", "grpc"))).To(Succeed())

		By("an update of another field, which is not held up by them")
		stored := storedExport(ctx, namespace, "web")
		stored.Spec.ExportedLabels = map[string]string{"a": "b"}
		Expect(k8s.Update(ctx, stored)).To(Succeed())

		By("an update of the list")
		stored.Annotations[model.AnnotationExportPorts] = "web"
		Expect(k8s.Update(ctx, stored)).To(MatchError(ContainSubstring(`has no port named "web"; its ports: "grpc"`)))
		stored.Annotations[model.AnnotationExportPorts] = "grpc"
		Expect(k8s.Update(ctx, stored)).To(Succeed())
	})

	It("are what policies see, so that one may demand them", func(ctx SpecContext) {
		judges.Load(engine.Policy{Name: "protected-ports", ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: `package comity.policies.protected_ports

deny contains {"msg": sprintf("port %s is not for other clusters", [port.name]), "field": "metadata.annotations[\"comity.dev/export-ports\"]"} if {
	some port in input.ports
	port.name == "admin"
}
`}})
		namespace := newNamespace(ctx, nil)
		Expect(k8s.Create(ctx, withPorts(namespace, "web", "http", "admin"))).To(Succeed())
		Expect(k8s.Create(ctx, export("v1beta1", namespace, "web"))).To(MatchError(ContainSubstring("port admin is not for other clusters")))
		Expect(k8s.Create(ctx, sharing("v1beta1", namespace, "web", "http"))).To(Succeed())
	})
})

var _ = Describe("A policy that forbids an export to some clusters", func() {
	It("refuses the request, and says for which", func(ctx SpecContext) {
		judges.Load(engine.Policy{Name: "residency", ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: `package comity.policies.residency

deny contains {"msg": "it stays in the EU", "clusters": ["cluster-3", "cluster-2"], "remedy": "Name only cluster-4."} if input.effectiveScope.all
`}})
		err := k8s.Create(ctx, export("v1beta1", newNamespace(ctx, nil), "web"))
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("[residency] it stays in the EU. Refused for clusters cluster-2, cluster-3. Remedy: Name only cluster-4.")))
	})
})

var _ = Describe("A conflict with an export of another member", func() {
	It("is foretold and stored all the same", func(ctx SpecContext) {
		namespace := newNamespace(ctx, nil)
		Expect(k8s.Create(ctx, withPorts(namespace, "web", "http"))).To(Succeed())
		others.Export(model.Export{
			SourceExport:      model.SourceExport{Cluster: "cluster-2", UID: "theirs", CreatedAt: time.Now().Add(-72 * time.Hour)},
			Key:               types.NamespacedName{Namespace: namespace, Name: "web"},
			ServiceProperties: model.ServiceProperties{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Name: "http", Port: 8080, Protocol: corev1.ProtocolTCP}}},
		})
		// The Service is read from the cache alone, which may be a moment behind.
		foretold := And(
			ContainSubstring("ServiceExport "+namespace+"/web would have PortConflict: "), ContainSubstring(`port "http": 8080/TCP in cluster-2`),
			ContainSubstring("the export of cluster cluster-2 has it"))
		Eventually(func(g Gomega) {
			warnings.Take()
			object := export("v1alpha1", namespace, "web")
			g.Expect(k8s.Create(ctx, object)).To(Succeed())
			g.Expect(k8s.Delete(ctx, object)).To(Succeed())
			g.Expect(warnings.Take()).To(ConsistOf(foretold))
		}).WithTimeout(10 * time.Second).Should(Succeed())

		By("an update, of this export that is now stored")
		Expect(k8s.Create(ctx, export("v1beta1", namespace, "web"))).To(Succeed())
		stored := storedExport(ctx, namespace, "web")
		stored.Annotations = map[string]string{"example.com/note": "x"}
		warnings.Take()
		Expect(k8s.Update(ctx, stored)).To(Succeed())
		Expect(warnings.Take()).To(ConsistOf(foretold))
	})

	It("hides no refusal", func(ctx SpecContext) {
		judges.Overrule(decision.Verdict{Outcome: decision.Denied, Violations: []decision.Violation{{Policy: "p", Message: "no"}}})
		warnings.Take()
		Expect(k8s.Create(ctx, export("v1beta1", newNamespace(ctx, nil), "web"))).NotTo(Succeed())
		Expect(warnings.Take()).To(BeEmpty())
	})
})
