// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/envtest/suite"
)

var _ = Describe("A bad export", func() {
	DescribeTable("scope is refused with one message that names the field and the remedy",
		func(ctx SpecContext, to string, parts ...string) {
			ns, a := newNamespace(ctx, "scope"), members["a"]
			a.create(ctx, service(ns, "web"))
			parts = append(parts, "ServiceExport "+ns+"/web", "[export-scope]", `metadata.annotations["comity.dev/export-to"]`)
			oneMessage(suite.Evaluated(func() error { return a.client.Create(ctx, scoped(ns, "web", to)) }), parts...)
			asLabel := export(ns, "web")
			asLabel.Labels = map[string]string{model.LabelExportTo: to}
			oneMessage(suite.Evaluated(func() error { return a.client.Create(ctx, asLabel) }), parts...)
			everythingElseWorks(ctx)
		},
		Entry("that names an unknown cluster", "b,nowhere", "names nowhere", "no member of the clusterset", "known clusters: b, c"),
		Entry("that names the cluster itself", "a,b", `"a"`, "this cluster itself", `Remove "a"`),
		Entry("that names nothing", " ", "names no cluster", "remove the annotation"),
		Entry("that is malformed", "b,,c", `item 2 of "b,,c" is empty`, "known here: b, c"),
		Entry("that has no cluster id in it", "b,C_3", `"C_3"`, "RFC 1123"),
	)

	It("without a Service is stored, says so, and becomes valid when the Service comes", func(ctx SpecContext) {
		ns, a, b := newNamespace(ctx, "missing"), members["a"], members["b"]
		a.create(ctx, export(ns, "web"))
		Eventually(a.condition(ns, "web", string(mcsv1beta1.ServiceExportConditionValid))).WithContext(ctx).
			Should(And(HavePrefix("False/NoService: "), ContainSubstring(ns+"/web")))
		everythingElseWorks(ctx)
		a.create(ctx, service(ns, "web"), endpoints(ns, "web", "web-x", "10.99.0.1"))
		Eventually(a.condition(ns, "web", string(mcsv1beta1.ServiceExportConditionValid))).WithContext(ctx).Should(HavePrefix("True/"))
		Eventually(b.backends(ns, "web")).WithContext(ctx).Should(Equal([]string{"a/10.99.0.1"}))
	})
})

var _ = Describe("A name", func() {
	It("that a foreign Service has already is reported, and another one is taken", func(ctx SpecContext) {
		ns, a, b := newNamespace(ctx, "taken"), members["a"], members["b"]
		foreign := service(ns, model.DerivedName("web"))
		foreign.Labels = map[string]string{model.LabelServiceName: "web"} // even under our label
		b.create(ctx, foreign)
		a.create(ctx, service(ns, "web"), endpoints(ns, "web", "web-x", "10.99.0.1"), export(ns, "web"))
		Eventually(b.importReady(ns, "web")).WithContext(ctx).
			Should(ContainSubstring(model.DerivedName("web")), "the message names the object that is in the way")
		Eventually(b.backends(ns, "web")).WithContext(ctx).Should(Equal([]string{"a/10.99.0.1"}))
		Expect(b.derived(ctx, ns, "web")).To(Equal(model.AlternateDerivedName("web")))
		after := service(ns, foreign.Name)
		Expect(b.client.Get(ctx, client.ObjectKeyFromObject(after), after)).To(Succeed())
		Expect(after.ResourceVersion).To(Equal(foreign.ResourceVersion), "the foreign Service is untouched")
		everythingElseWorks(ctx)
	})

	It("whose Adler-32 sum another has too gets a Service of its own", func(ctx SpecContext) {
		const first, second = "svc-adb", "svc-bbc"
		Expect(model.DerivedName(first)).To(Equal(model.DerivedName(second)), "the premise")
		ns, a, b := newNamespace(ctx, "collide"), members["a"], members["b"]
		backends := map[string]string{first: "10.99.0.1", second: "10.99.0.2"}
		for name, address := range backends {
			a.create(ctx, service(ns, name), endpoints(ns, name, name+"-x", address), export(ns, name))
		}
		for name, address := range backends {
			Eventually(b.backends(ns, name)).WithContext(ctx).Should(Equal([]string{"a/" + address}))
			Eventually(b.importReady(ns, name)).WithContext(ctx).Should(HavePrefix("True/"))
		}
		Expect([]string{b.derived(ctx, ns, first), b.derived(ctx, ns, second)}).To(Or(
			Equal([]string{model.DerivedName(first), model.AlternateDerivedName(second)}),
			Equal([]string{model.AlternateDerivedName(first), model.DerivedName(second)})))
		ips := map[string]bool{}
		for name := range backends {
			i := &mcsv1beta1.ServiceImport{}
			Expect(b.client.Get(ctx, types.NamespacedName{Namespace: ns, Name: name}, i)).To(Succeed())
			Expect(i.Spec.IPs).To(HaveLen(1))
			ips[i.Spec.IPs[0]] = true
		}
		Expect(ips).To(HaveLen(2), "two clusterset IPs")
		everythingElseWorks(ctx)
	})
})

var _ = Describe("A policy that does not compile", func() {
	It("is refused with the place of the error, and the others go on to judge", func(ctx SpecContext) {
		a := members["a"]
		oneMessage(suite.Evaluated(func() error { return a.client.Create(ctx, broken()) }), "ExportPolicy broken", "broken.rego:3:", "spec.rego", "no_such_thing")
		everythingElseWorks(ctx)
		ns := newNamespace(ctx, "policy")
		oneMessage(suite.Evaluated(func() error { return a.client.Create(ctx, scoped(ns, "web", "nowhere")) }), "export-scope")
	})
})

// external: a Service of type ExternalName is exported nowhere, and nobody waits for it.
var _ = Describe("A Service without addresses of its own", func() {
	It("is not exported, with the policy's name and a remedy in one message", func(ctx SpecContext) {
		ns, a := newNamespace(ctx, "external"), members["a"]
		s := service(ns, "web")
		s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}
		a.create(ctx, s)
		oneMessage(suite.Evaluated(func() error { return a.client.Create(ctx, export(ns, "web")) }), "ServiceExport "+ns+"/web", "no-external-name", "ExternalName")
		everythingElseWorks(ctx)
	})
})
