// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/status/condition"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
)

// admitted is the condition that says what the policies answered.
const admitted = condition.TypeAdmitted

// records are the UIDs of the live records of an export of m: a record that was
// withdrawn and published again has another one.
func records(ctx context.Context, m *clusterset.Member, ns, name string) []types.UID {
	GinkgoHelper()
	var list exchangev1alpha1.ExportRecordList
	Expect(m.Client.List(ctx, &list)).To(Succeed())
	out := []types.UID{}
	for _, record := range list.Items {
		if record.Name == name+"."+ns && !record.Spec.Withdrawn {
			out = append(out, record.UID)
		}
	}
	return out
}

// external is a Service that the policy no-external-name refuses to export.
func external(ns, name string) *corev1.Service {
	s := clusterset.Service(ns, name)
	s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}
	return s
}

// tryExternal asks, without storing anything, for the export of an ExternalName Service.
func tryExternal(m *clusterset.Member, ns string) func(context.Context) error {
	return func(ctx context.Context) error {
		return m.Client.Create(ctx, clusterset.Export(ns, "external"), client.DryRunAll)
	}
}

var _ = Describe("FAULT 18: the policies are removed", func() {
	const ns = "unruled"

	It("the configured default holds, and existing exports are not torn down", func(ctx SpecContext) {
		setUp(ctx, ns)
		a.Create(ctx, external(ns, "external"))
		exportOne(ctx, a, ns, "kept", 80, "10.60.0.1")
		Eventually(ctx, b.Backends(ns, "kept")).Should(Equal([]string{"a/10.60.0.1"}))
		before := records(ctx, a, ns, "kept")
		Expect(before).NotTo(BeEmpty())
		imported := clusterset.Get(ctx, b, clusterset.Import(ns, "kept")).UID
		Expect(tryExternal(a, ns)(ctx)).To(MatchError(ContainSubstring("[no-external-name]")), "the premise")

		var policies policyv1alpha1.ExportPolicyList
		Expect(a.Client.List(ctx, &policies)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			for _, policy := range policies.Items {
				policy.ObjectMeta = metav1.ObjectMeta{Name: policy.Name, Labels: policy.Labels}
				Expect(client.IgnoreAlreadyExists(a.Client.Create(ctx, &policy))).To(Succeed())
			}
		})
		afterFailure(func(ctx context.Context) { a.Restart(ctx) })

		By("evaluating nothing, where policies are required")
		a.Restart(ctx, "--require-policies=export-scope,no-external-name")
		Expect(a.Client.DeleteAllOf(ctx, &policyv1alpha1.ExportPolicy{})).To(Succeed())
		Eventually(ctx, tryExternal(a, ns)).Should(MatchError(ContainSubstring("ExportPolicy export-scope, no-external-name could not be evaluated")))
		Eventually(ctx, a.ExportCondition(ns, "kept", admitted)).Should(And(
			HavePrefix("Unknown/NotEvaluated: "), ContainSubstring("policy export-scope: it does not exist, and this cluster requires it")))
		// That the agent works, and has looked at the export again, shows by its endpoints.
		change(ctx, a, ns, "kept", "10.60.0.2")
		Eventually(ctx, b.Backends(ns, "kept")).Should(Equal([]string{"a/10.60.0.2"}))

		By("allowing everything, which is the default")
		a.Restart(ctx)
		Eventually(ctx, tryExternal(a, ns)).Should(Succeed())
		Eventually(ctx, a.ExportCondition(ns, "kept", admitted)).Should(HavePrefix("True/Admitted: "))
		exportOne(ctx, a, ns, "later", 80, "10.60.0.3")
		Eventually(ctx, b.Backends(ns, "later")).Should(Equal([]string{"a/10.60.0.3"}))

		Expect(b.Backends(ns, "kept")(Default, ctx)).To(Equal([]string{"a/10.60.0.2"}))
		Expect(records(ctx, a, ns, "kept")).To(Equal(before))
		Expect(clusterset.Get(ctx, b, clusterset.Import(ns, "kept")).UID).To(Equal(imported))
	})
})

var _ = Describe("FAULT 20: what slipped by while the webhooks were down", func() {
	const ns = "slipped"

	It("is found by the audit, and nothing else is touched", func(ctx SpecContext) {
		setUp(ctx, ns)
		exportOne(ctx, a, ns, "kept", 80, "10.61.0.1")
		exportOne(ctx, a, ns, "turned", 80, "10.61.0.2")
		for name, address := range map[string]string{"kept": "10.61.0.1", "turned": "10.61.0.2"} {
			Eventually(ctx, b.Backends(ns, name)).Should(Equal([]string{"a/" + address}))
		}
		before := records(ctx, a, ns, "kept")

		a.Without(ctx, func() {
			Expect(a.Client.Create(ctx, clusterset.Export(ns, "new"))).To(MatchError(ContainSubstring("failed calling webhook")), "the webhook fails closed")

			By("making a Service again with another type, which passes no webhook")
			Expect(a.Client.Delete(ctx, clusterset.Service(ns, "turned"))).To(Succeed())
			a.Create(ctx, external(ns, "turned"))

			By("taking away the webhook, as administrators do in an emergency")
			restore := removeWebhook(ctx, a)
			stray := clusterset.Export(ns, "stray")
			stray.Annotations = map[string]string{model.AnnotationExportTo: "b,nowhere"}
			a.Create(ctx, clusterset.Service(ns, "stray"), stray)
			restore(ctx)
		})

		Eventually(ctx, a.ExportCondition(ns, "turned", admitted)).Should(And(HavePrefix("False/PolicyDenied: "), ContainSubstring("[no-external-name]")))
		Eventually(ctx, a.ExportCondition(ns, "stray", admitted)).Should(And(HavePrefix("False/PolicyDenied: "),
			ContainSubstring("[export-scope]"), ContainSubstring("names nowhere")))
		Eventually(ctx, b.Backends(ns, "turned")).Should(BeEmpty())
		Expect(records(ctx, a, ns, "stray")).To(BeEmpty())
		Expect(b.Backends(ns, "kept")(Default, ctx)).To(Equal([]string{"a/10.61.0.1"}))
		Expect(records(ctx, a, ns, "kept")).To(Equal(before))
	})
})

// removeWebhook deletes the webhook on ServiceExports; what it returns brings it back,
// and so does the end of the spec.
func removeWebhook(ctx context.Context, m *clusterset.Member) (restore func(context.Context)) {
	GinkgoHelper()
	named := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "comity"}}
	all := clusterset.Get(ctx, m, named).Webhooks
	set := func(ctx context.Context, keep func(admissionv1.ValidatingWebhook) bool) {
		GinkgoHelper()
		clusterset.Change(ctx, m, named, func(c *admissionv1.ValidatingWebhookConfiguration) {
			c.Webhooks = nil
			for _, hook := range all {
				if keep(hook) {
					c.Webhooks = append(c.Webhooks, hook)
				}
			}
		})
	}
	restore = func(ctx context.Context) { set(ctx, func(admissionv1.ValidatingWebhook) bool { return true }) }
	DeferCleanup(restore)
	set(ctx, func(hook admissionv1.ValidatingWebhook) bool { return !strings.Contains(hook.Name, "serviceexport") })
	// The API server learns of it a moment later.
	Eventually(ctx, func() error { return m.Client.Create(ctx, clusterset.Export("default", "probe"), client.DryRunAll) }).Should(Succeed())
	return restore
}
