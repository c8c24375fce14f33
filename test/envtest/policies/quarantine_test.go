// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/test/envtest/suite"
)

// bomb is a policy whose rules are each ten copies of the one before, for exports with the
// label bomb=true: it needs gigabytes.
func bomb() *v1alpha1.ExportPolicy {
	rego := "package comity.policies.bomb\n\ndeny contains {\"msg\": \"no\"} if count(x8) < 0\n\nx0 := concat(\"\", [input.cluster, \"0123456789\"])\n"
	for n := range 8 {
		rego += fmt.Sprintf("\nx%d := concat(\"\", [%s])\n", n+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("x%d, ", n), 10), ", "))
	}
	return &v1alpha1.ExportPolicy{ObjectMeta: metav1.ObjectMeta{Name: "bomb"}, Spec: v1alpha1.ExportPolicySpec{
		Rego:  rego,
		Match: &v1alpha1.Match{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"bomb": "true"}}},
	}}
}

// review evaluates an export with the label bomb=true.
func (r *replica) review(namespace string) decision.Verdict {
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db", Labels: map[string]string{"bomb": "true"}}}
	return r.engine.Evaluate(context.Background(), decision.Input{
		Operation: decision.Audit, Subject: decision.SubjectServiceExport, Object: export, Cluster: "a",
		Scope: decision.Scope{All: true}, NamespaceScope: decision.Scope{All: true},
	})
}

// evaluatedAs is status and reason of the condition Evaluated.
func evaluatedAs(ctx context.Context, name string) func() string {
	return func() string {
		object, _ := stored(ctx, name)
		c := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionEvaluated)
		if c == nil {
			return ""
		}
		return string(c.Status) + "/" + c.Reason
	}
}

var _ = Describe("A policy that ends the process in which it is evaluated", Ordered, func() {
	var leader, follower *replica

	BeforeAll(func() {
		leader, follower = startApart(), startApart()
		leader.elect()
		DeferCleanup(deleteAll)
	})

	It("fails for that input with the reason ResourceExhausted, while other policies answer", func(ctx SpecContext) {
		fine := policy("fine", "no")
		fine.Spec.Match = &v1alpha1.Match{ObjectSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "bomb", Operator: metav1.LabelSelectorOpDoesNotExist},
		}}}
		create(ctx, bomb(), fine)
		for _, r := range []*replica{leader, follower} {
			Eventually(r.answer).Within(timeout).Should(ConsistOf("fine no"))
		}
		Eventually(func() string { return leader.review("shop").Problem }).Within(timeout).Should(HavePrefix("policy bomb: ResourceExhausted: "))
		Eventually(leader.answer).Within(timeout).Should(ConsistOf("fine no"))
		Eventually(evaluatedAs(ctx, "bomb")).Within(timeout).Should(Equal("False/ResourceExhausted"))
		object, _ := stored(ctx, "bomb")
		Expect(object.Status.Quarantine).To(BeNil(), "one namespace is not enough")
		Expect(compiled(ctx, "bomb")()).To(Equal("True/Compiled"))
	})

	It("for two namespaces is in quarantine on every replica, until it is changed", func(ctx SpecContext) {
		Eventually(func() string { return leader.review("bank").Problem }).Within(timeout).Should(ContainSubstring("ResourceExhausted: "))
		Eventually(compiled(ctx, "bomb")).Within(timeout).Should(Equal("False/ResourceExhausted"))
		object, condition := stored(ctx, "bomb")
		Expect(object.Status.Quarantine).To(And(Not(BeNil()), HaveField("Message", HavePrefix("ResourceExhausted: "))))
		Expect(condition.Message).To(ContainSubstring("It is not in use."))
		for _, r := range []*replica{leader, follower} { // which reads it in the status
			Eventually(func() string { return r.review("office").Problem }).Within(timeout).Should(HavePrefix("policy bomb cannot be used as it is stored (ResourceExhausted: "))
			Expect(r.answer()).To(ConsistOf("fine no"))
		}

		By("starting another replica")
		Expect(startApart().review("office").Problem).To(HavePrefix("policy bomb cannot be used as it is stored (ResourceExhausted: "))

		By("changing the policy")
		edit(ctx, "bomb", module("bomb", "it is harmless now"))
		Eventually(compiled(ctx, "bomb")).Within(timeout).Should(Equal("True/Compiled"))
		Eventually(func() *v1alpha1.Quarantine { object, _ := stored(ctx, "bomb"); return object.Status.Quarantine }).Within(timeout).Should(BeNil())
		for _, r := range []*replica{leader, follower} {
			Eventually(func() decision.Outcome { return r.review("office").Outcome }).Within(timeout).Should(Equal(decision.Denied))
		}
	})
})

var _ = Describe("Policies that fail", Ordered, func() {
	var leader *replica

	// ask creates an export through the webhook.
	ask := func(ctx context.Context, labels map[string]string) error {
		return direct.Create(ctx, &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "failing", Name: "web", Labels: labels}}, client.DryRunAll)
	}
	// patiently asks again if a busy machine left no time to start the next process.
	patiently := func(ctx context.Context, labels map[string]string) error {
		return suite.Evaluated(func() error { return ask(ctx, labels) })
	}

	BeforeAll(func(ctx SpecContext) {
		leader = startApart()
		leader.elect()
		DeferCleanup(deleteAll)
		unguard := leader.guard(ctx)
		DeferCleanup(func(ctx SpecContext) { unguard(ctx) })
		Expect(direct.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "failing"}})).To(Succeed())
		fine := policy("fine", "no owner")
		fine.Spec.Match = &v1alpha1.Match{ObjectSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "owner", Operator: metav1.LabelSelectorOpDoesNotExist},
		}}}
		create(ctx, fine)
		Eventually(func() error { return ask(ctx, nil) }).Within(timeout).Should(MatchError(ContainSubstring("[fine] no owner.")))
	})

	owned := map[string]string{"owner": "jane"}

	It("at run time, with enforcement Warn, refuse nothing and hide nothing", func(ctx SpecContext) {
		tier := policy("tier", "never")
		tier.Spec.Enforcement = v1alpha1.Warn
		tier.Spec.Rego = "package comity.policies.tier\n\ntier := \"a\" if input.cluster\n\ntier := \"b\" if input.object\n\ndeny contains {\"msg\": \"no\"} if tier == \"c\"\n"
		create(ctx, tier)
		Eventually(evaluatedAfter(ctx, "tier", func() {
			Expect(patiently(ctx, owned)).To(Succeed())
			Expect(patiently(ctx, nil)).To(MatchError(ContainSubstring("[fine] no owner.")))
		})).Within(timeout).Should(Equal("False/EvaluationFailed"))
	})

	It("because of their time are named, and those are not that suffer from them", func(ctx SpecContext) {
		endless := policy("endless", "never")
		endless.Spec.Enforcement = v1alpha1.Warn
		endless.Spec.Rego = slow().Spec.Rego
		endless.Spec.Rego = strings.Replace(endless.Spec.Rego, "policies.slow", "policies.endless", 1)
		create(ctx, endless)
		Eventually(evaluatedAfter(ctx, "endless", func() {
			Expect(patiently(ctx, owned)).To(Succeed())
			Expect(patiently(ctx, nil)).To(MatchError(ContainSubstring("[fine] no owner.")))
		})).Within(timeout).Should(Or(Equal("False/EvaluationFailed"), Equal("False/ResourceExhausted")))
		Expect(evaluatedAs(ctx, "fine")()).To(BeEmpty())
	})
})

// evaluatedAfter does something, and is then evaluatedAs.
func evaluatedAfter(ctx context.Context, name string, do func()) func() string {
	return func() string {
		do()
		return evaluatedAs(ctx, name)()
	}
}
