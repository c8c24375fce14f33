// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/test/envtest/suite"
)

// sources is an ExportPolicy with stage Import, for one namespace, that denies imports
// for which the body holds.
func sources(namespace, body string) *policyv1alpha1.ExportPolicy {
	return &policyv1alpha1.ExportPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "sources"},
		Spec: policyv1alpha1.ExportPolicySpec{
			Stage: policyv1alpha1.StageImport,
			Match: &policyv1alpha1.Match{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}}},
			Rego: fmt.Sprintf(`package comity.policies.sources

deny contains {"msg": sprintf("cluster %%s is not trusted", [input.source.cluster]), "remedy": "Ask for trust."} if {
	%s
}
`, body),
		},
	}
}

var _ = Describe("An ExportPolicy with stage Import", func() {
	It("keeps a source out, in the importer alone, and both sides say why", func(ctx SpecContext) {
		a, b, c := members["a"], members["b"], members["c"]
		ns := newNamespace(ctx, "sources")
		first, second := newAddress(), newAddress()
		a.create(ctx, service(ns, "web"), endpoints(ns, "web", "web-a", first), export(ns, "web"))
		c.create(ctx, service(ns, "web"), endpoints(ns, "web", "web-c", second), export(ns, "web"))
		both := []string{"a/" + first, "c/" + second}
		Eventually(b.backends(ns, "web")).WithContext(ctx).Should(Equal(both))

		By("refusing what reads an input of another stage")
		oneMessage(suite.Evaluated(func() error { return b.client.Create(ctx, sources(ns, `input.object.metadata.name == "web"`)) }), "sources.rego:4:2: undefined ref: input.object.metadata.name",
			`want (one of): ["apiVersion" "cluster" "export" "namespace" "source"]`)

		By("denying a")
		b.create(ctx, sources(ns, `input.source.cluster == "a"`))
		DeferCleanup(func(ctx context.Context) { b.remove(ctx, sources(ns, "true")) })
		Eventually(b.backends(ns, "web")).WithContext(ctx).Should(Equal([]string{"c/" + second}))
		const why = "[sources] cluster a is not trusted. Remedy: Ask for trust."
		Eventually(a.condition(ns, "web", "Available")).WithContext(ctx).Should(And(HavePrefix("False/PolicyDenied: "), ContainSubstring("in b"), ContainSubstring(why)))
		Eventually(b.importReady(ns, "web")).WithContext(ctx).Should(And(HavePrefix("True/"), ContainSubstring("PolicyDenied"), ContainSubstring(why)))
		Eventually(c.condition(ns, "web", "Available")).WithContext(ctx).Should(HavePrefix("True/Imported"))
		Consistently(c.backends(ns, "web")).WithContext(ctx).Should(Equal(both))
		Eventually(func(g Gomega) {
			policy := &policyv1alpha1.ExportPolicy{}
			g.Expect(b.client.Get(ctx, types.NamespacedName{Name: "sources"}, policy)).To(Succeed())
			g.Expect(policy.Status.Violations).To(HaveValue(Equal(policyv1alpha1.Violations{Total: 1, Items: []policyv1alpha1.ViolationItem{
				{Namespace: ns, Name: "web", Cluster: "a", Message: "cluster a is not trusted. Remedy: Ask for trust."},
			}})))
			g.Expect(policy.Status.Matched).To(HaveValue(Equal(int32(2))))
		}).Should(Succeed())

		By("allowing it again")
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"rego":%q}}`, sources(ns, `input.source.cluster == "nobody"`).Spec.Rego))
		Expect(suite.Evaluated(func() error { return b.client.Patch(ctx, sources(ns, ""), patch) })).To(Succeed())
		Eventually(b.backends(ns, "web")).WithContext(ctx).Should(Equal(both))
		Eventually(a.condition(ns, "web", "Available")).WithContext(ctx).Should(HavePrefix("True/Imported"))
		everythingElseWorks(ctx)
	})
})
