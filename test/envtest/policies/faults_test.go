// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/test/envtest/suite"
)

// deleteAll leaves no policy to the next spec.
func deleteAll(ctx context.Context) {
	GinkgoHelper()
	Expect(direct.DeleteAllOf(ctx, &v1alpha1.ExportPolicy{})).To(Succeed())
}

// good is a module that denies with this message.
func good(message string) string { return module("hostile", message) }

// storable are modules that cannot be used and that an API server stores, with what
// names the problem, and where it is.
var storable = map[string]struct{ rego, place, problem string }{
	"malformed":              {"package comity.policies.hostile\n\ndeny contains {", "hostile.rego:3:", "unexpected eof"},
	"nothing but space":      {" \n\t\n", "hostile.rego:1:1: ", "empty module"},
	"without a package":      {"deny contains {\"msg\": \"no\"} if true\n", "hostile.rego:1:1: ", "package expected"},
	"with a byte order mark": {"\ufeff" + good("no"), "hostile.rego:1:1: ", "byte order mark"},
	"with a NUL":             {good("no") + "# \x00\n", "hostile.rego:4:1: ", "illegal null character"},
}

// unstorable are modules that the definition of ExportPolicies refuses by itself.
var unstorable = map[string]struct{ rego, problem string }{
	"empty":   {"", "spec.rego"},
	"300 KiB": {good("no") + strings.Repeat("# comment\n", 30<<10), "spec.rego: Too long"},
	"5 MiB":   {good("no") + strings.Repeat("# comment\n", 512<<10), "too large"},
}

var _ = Describe("FAULT 16: Rego that is malformed, empty, of 5 MiB, or has a byte order mark or a NUL", Ordered, func() {
	var leader, follower *replica
	var unguard func(context.Context)

	BeforeAll(func(ctx SpecContext) {
		leader, follower = start(), startApart()
		leader.elect()
		DeferCleanup(deleteAll)
		unguard = follower.guard(ctx)
		create(ctx, &v1alpha1.ExportPolicy{ObjectMeta: metav1.ObjectMeta{Name: "hostile"}, Spec: v1alpha1.ExportPolicySpec{Rego: good("v1")}})
		for _, r := range []*replica{leader, follower} {
			Eventually(r.answer).Within(timeout).Should(ConsistOf("hostile v1"))
		}
	})

	tryEdit := func(ctx context.Context, rego string) error {
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"rego": rego}})
		Expect(err).NotTo(HaveOccurred())
		object := &v1alpha1.ExportPolicy{ObjectMeta: metav1.ObjectMeta{Name: "hostile"}}
		return suite.Evaluated(func() error { return direct.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch)) })
	}

	It("is refused at admission with the place and the reason, and what was stored stays in use", func(ctx SpecContext) {
		for title, bad := range storable {
			Expect(tryEdit(ctx, bad.rego)).To(MatchError(And(ContainSubstring("ExportPolicy hostile cannot be used"),
				ContainSubstring(bad.place), ContainSubstring(bad.problem), ContainSubstring("Remedy: "))), title)
		}
		for title, bad := range unstorable {
			Expect(tryEdit(ctx, bad.rego)).To(MatchError(ContainSubstring(bad.problem)), title)
		}
		object, _ := stored(ctx, "hostile")
		Expect(object.Generation).To(Equal(int64(1)))
		Expect(leader.answer()).To(ConsistOf("hostile v1"))
	})

	It("that is stored all the same is shown, and exports that it matches are not evaluated", func(ctx SpecContext) {
		unguard(ctx)
		for title, bad := range storable {
			By(title)
			Expect(tryEdit(ctx, bad.rego)).To(Succeed())
			Eventually(compiled(ctx, "hostile")).Within(timeout).Should(Equal("False/CompileError"))
			object, condition := stored(ctx, "hostile")
			Expect(condition.Message).To(And(HavePrefix(bad.place), ContainSubstring(bad.problem), ContainSubstring("not evaluated")))
			Expect(object.Status.Digest).To(BeEmpty())
			for _, r := range []*replica{leader, follower} {
				Eventually(r.answer).Within(timeout).Should(ConsistOf(And(
					HavePrefix("NotEvaluated: policy hostile cannot be used as it is stored (hostile.rego:"), Not(ContainSubstring("\n")))))
			}
			Expect(tryEdit(ctx, good("v2"))).To(Succeed())
			Eventually(compiled(ctx, "hostile")).Within(timeout).Should(Equal("True/Compiled"))
			for _, r := range []*replica{leader, follower} {
				Eventually(r.answer).Within(timeout).Should(ConsistOf("hostile v2"))
			}
		}
	})

	It("that no API server stores is refused without Comity as well", func(ctx SpecContext) {
		for title, bad := range unstorable {
			Expect(tryEdit(ctx, bad.rego)).To(MatchError(ContainSubstring(bad.problem)), title)
		}
		Expect(leader.answer()).To(ConsistOf("hostile v2"))
	})
})

// slow is a policy that would take years for exports with the label slow=true.
func slow() *v1alpha1.ExportPolicy {
	return &v1alpha1.ExportPolicy{ObjectMeta: metav1.ObjectMeta{Name: "slow"}, Spec: v1alpha1.ExportPolicySpec{
		Match: &v1alpha1.Match{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"slow": "true"}}},
		Rego: `package comity.policies.slow

deny contains {"msg": "found"} if {
	some x in numbers.range(1, 10000000)
	some y in numbers.range(1, 10000000)
	x + y < 0
}
`,
	}}
}

var _ = Describe("FAULT 17: a slow policy, and 100 requests at once", Ordered, func() {
	const (
		requests = 100
		bySlow   = "[fine] no.\nNot every policy could be evaluated: policy slow: "
	)
	slowExport := func(name string) *mcsv1beta1.ServiceExport {
		return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"slow": "true"}}}
	}

	It("has bounds by which every evaluation ends within a second", func() {
		// Once with the other policies, once alone.
		Expect(engine.DefaultTimeout * 2).To(BeNumerically("<=", time.Second))
	})

	It("each gets an answer of Comity's own that names the cause, and the next request is answered", func(ctx SpecContext) {
		leader := startApart()
		leader.elect()
		DeferCleanup(deleteAll)
		leader.guard(ctx)
		create(ctx, slow(), policy("fine", "no"))
		Eventually(compiled(ctx, "slow")).Within(timeout).Should(Equal("True/Compiled"))
		Eventually(leader.answer).Within(timeout).Should(ConsistOf("fine no"))

		var all sync.WaitGroup
		errs, took := make([]error, requests), make([]time.Duration, requests)
		for i := range requests {
			all.Go(func() {
				asked := time.Now()
				errs[i] = direct.Create(ctx, slowExport(fmt.Sprintf("web-%d", i)), client.DryRunAll)
				took[i] = time.Since(asked)
			})
		}
		all.Wait()
		late, inTime, longest := 0, int64(0), time.Duration(0)
		for i, err := range errs {
			longest = max(longest, took[i])
			if err != nil && strings.Contains(err.Error(), "deadline exceeded") { // the API server's
				late++
				continue
			}
			Expect(err).To(MatchError(Or(
				ContainSubstring(bySlow),
				ContainSubstring("policy fine: it took too long and was stopped; policy slow: "), // beside as many as there are processors
				ContainSubstring("evaluations are running and none ended in time"),
				ContainSubstring("the policies were not evaluated in time"),
				ContainSubstring("the process that evaluates policies ended: it "), // takes, or needs, more than it may: many at once
				ContainSubstring("Comity's webhook answers"),                       // its gate lets 64 requests in at a time
			)))
			if strings.Contains(err.Error(), bySlow) && took[i] < 1500*time.Millisecond { // else the time of the request, two thirds of 3 s, may have ended: it is not known whose fault that is
				inTime++
			}
		}
		Expect(late).To(BeNumerically("<=", requests/2), "on a busy machine, the answers to some come too late for the API server")
		AddReportEntry("the longest answer took", longest.Round(time.Millisecond).String())

		By("asking once more, for an export that the slow policy matches, and for one that it does not")
		Eventually(func() error { return direct.Create(ctx, slowExport("web"), client.DryRunAll) }).Within(timeout).Should(MatchError(ContainSubstring(bySlow)))
		Eventually(leader.answer).Within(timeout).Should(ConsistOf("fine no"))
		By("showing which policy it was")
		Eventually(func() string {
			object, _ := stored(ctx, "slow")
			condition := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionEvaluated)
			if condition == nil || object.Status.Failures == nil {
				_ = direct.Create(ctx, slowExport("web"), client.DryRunAll) // the answers so far may have come too late to be the policy's fault
				return ""
			}
			if condition.Reason == v1alpha1.ReasonResourceExhausted {
				inTime = 1 // what a process had counted that ended is lost
			}
			return fmt.Sprintf("%s/%s %t", condition.Status, condition.Reason, object.Status.Failures.Count >= max(1, inTime))
		}).Within(timeout).Should(Or(Equal("False/EvaluationFailed true"), Equal("False/ResourceExhausted true")))
	})
})
