// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/test/envtest/suite"
)

// podMemory is what the Pod of the agent has in config/manager.
const podMemory = 768 << 20

// costly are modules whose compilation takes too much: one takes time, and one takes memory above
// all: its annotations repeat a list by aliases. Which limit it exceeds first depends on the machine.
var costly = map[string]string{
	"slow":    "test_x := " + strings.Repeat("[y | y := ", 30) + "1" + strings.Repeat("]", 30),
	"aliases": strings.Repeat("# METADATA\n# custom:\n#   a: &a [{}"+strings.Repeat(",{}", 99)+"]\n#   b: [*a"+strings.Repeat(",*a", 999)+"]\ntest_x if true\n\n", 6),
}

// takes matches what is said of both.
const takes = `(?s)compiling the module: .*(more than 1s of CPU time|more than 224 MiB of memory|more than 64 MiB of stack|more than a process may .*); expected a module`

// costlyPolicy is one of them.
func costlyPolicy(name string) *policyv1alpha1.ExportPolicy {
	return unusable(name, `deny contains {"msg": "no"} if input.cluster == "never"`+"\n\n"+costly[name])
}

// broken is a policy that does not compile.
func broken() *policyv1alpha1.ExportPolicy {
	return unusable("broken", `deny contains {"msg": no_such_thing} if true`)
}

// unusable is a policy with these rules for exports with the label unusable=true.
func unusable(name, rules string) *policyv1alpha1.ExportPolicy {
	return &policyv1alpha1.ExportPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: policyv1alpha1.ExportPolicySpec{
		Match: &policyv1alpha1.Match{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"unusable": "true"}}},
		Rego:  "package comity.policies." + name + "\n\n" + rules + "\n",
	}}
}

// OPA's compiler can neither be interrupted nor be given a limit, so the agent has every
// policy that it does not know compiled by another process.
var _ = Describe("An ExportPolicy whose compilation takes more time or memory than there is", Ordered, func() {
	var c *member
	var ns string

	ask := func(ctx context.Context, name string, labels map[string]string) error {
		asked := export(ns, name)
		asked.Labels = labels
		began := time.Now()
		err := c.client.Create(ctx, asked, client.DryRunAll)
		Expect(time.Since(began)).To(BeNumerically("<", 10*time.Second), "the API server does not wait any longer")
		return err
	}
	// askBoth asks for what another policy refuses and for what all admit. It returns the answers
	// that were late.
	askBoth := func(ctx context.Context) (tooLate []error) {
		GinkgoHelper()
		for _, labels := range []map[string]string{nil, {"team": "shop"}} {
			switch err := ask(ctx, "web", labels); {
			case suite.IsLate(err):
				tooLate = append(tooLate, err)
			case labels == nil:
				Expect(err).To(MatchError(ContainSubstring("[fine] no team.")))
			default:
				Expect(err).NotTo(HaveOccurred())
			}
		}
		return tooLate
	}
	everyOtherPolicyIsInForce := func(ctx context.Context) {
		GinkgoHelper()
		Eventually(func() []error { return askBoth(ctx) }).Should(BeEmpty())
	}
	compiled := func(ctx context.Context, name string) string {
		GinkgoHelper()
		stored := &policyv1alpha1.ExportPolicy{}
		Expect(c.client.Get(ctx, client.ObjectKey{Name: name}, stored)).To(Succeed())
		return describe(meta.FindStatusCondition(stored.Status.Conditions, policyv1alpha1.ConditionCompiled))
	}
	// within reports that the agent has not taken more memory than its Pod has.
	within := func() {
		GinkgoHelper()
		peak, err := peakMemory(c.agent.PID())
		Expect(err).NotTo(HaveOccurred())
		Expect(peak).To(BeNumerically("<", podMemory), "the agent's own memory")
		AddReportEntry("the agent took at most", fmt.Sprintf("%d MiB", peak>>20))
	}

	BeforeAll(func(ctx SpecContext) {
		c, ns = members["c"], newNamespace(ctx, "compiled")
		fine := &policyv1alpha1.ExportPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "fine"},
			Spec: policyv1alpha1.ExportPolicySpec{
				Match: &policyv1alpha1.Match{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": ns}}},
				Rego:  "package comity.policies.fine\n\ndeny contains {\"msg\": \"no team\"} if not input.object.metadata.labels.team\n",
			},
		}
		c.create(ctx, fine)
		DeferCleanup(func(ctx SpecContext) { c.remove(ctx, fine) })
		Eventually(func() error { return ask(ctx, "web", nil) }).Should(MatchError(ContainSubstring("[fine] no team.")))
	})

	It("is refused, and costs the agent nothing", func(ctx SpecContext) {
		pid := c.agent.PID()
		for _, name := range slices.Sorted(maps.Keys(costly)) {
			// A machine that is too busy to compile it in time is no reason to store it.
			Expect(c.client.Create(ctx, costlyPolicy(name))).To(MatchError(Or(
				And(ContainSubstring("ExportPolicy "+name+" cannot be used"), MatchRegexp(takes)),
				And(ContainSubstring("ExportPolicy "+name+" could not be checked"), ContainSubstring("try again in a few seconds")))), name)
		}
		everyOtherPolicyIsInForce(ctx)
		Expect(c.agent.PID()).To(Equal(pid))
		within()
	})

	It("that is stored all the same is not in use and says why, while the agent answers with every other policy", func(ctx SpecContext) {
		unguard(ctx, c, "exportpolicies")
		pid := c.agent.PID()
		for _, name := range slices.Sorted(maps.Keys(costly)) {
			// The API server learns a moment later that it need not ask.
			another := costlyPolicy(name)
			another.Spec.Rego += "# which the agent has not seen yet\n"
			Eventually(func() error { return c.client.Create(ctx, another) }).Should(Succeed())
			DeferCleanup(func(ctx SpecContext) { c.remove(ctx, costlyPolicy(name)) })
		}
		asked := 0
		Eventually(func(g Gomega) {
			everyOtherPolicyIsInForce(ctx)
			asked++
			for name := range costly {
				g.Expect(compiled(ctx, name)).To(And(HavePrefix("False/CompileError: "+name+".rego:1:1: "), MatchRegexp(takes), ContainSubstring("It is not in use.")))
			}
		}).WithTimeout(ready).Should(Succeed())
		Expect(asked).To(BeNumerically(">", 2), "it answers while a policy is compiled, and not only before and after")
		AddReportEntry("requests meanwhile", asked)

		matched := map[string]string{"unusable": "true", "team": "shop"}
		Eventually(func() error { return ask(ctx, "web", matched) }).Should(MatchError(ContainSubstring("because ExportPolicy aliases, slow could not be evaluated")))
		Expect(c.agent.PID()).To(Equal(pid))
		Expect(func() int { code, _ := get(c.agent.ReadyURL()); return code }()).To(Equal(http.StatusOK))
		within()

		By("starting once more, with these policies in the cluster and one that it has never seen")
		Expect(c.agent.Stop()).To(Succeed())
		c.create(ctx, broken())
		DeferCleanup(func(ctx SpecContext) { c.remove(ctx, broken()) })
		Expect(c.agent.Start()).To(Succeed())
		Expect(c.agent.WaitReady(ctx, ready)).To(Succeed())
		everyOtherPolicyIsInForce(ctx)
		Eventually(func() error { return ask(ctx, "web", matched) }).Should(MatchError(ContainSubstring("because ExportPolicy aliases, broken, slow could not be evaluated")))
		Eventually(func() string { return compiled(ctx, "broken") }).Should(And(HavePrefix("False/"), ContainSubstring(":3:"), ContainSubstring("no_such_thing")))
		oneMessage(suite.Evaluated(func() error { return c.client.Create(ctx, scoped(healthyNamespace, "web", "nowhere")) }), "export-scope")
		within()
	})

	It("and all processes of the agent have room in the memory of its Pod", func() {
		if noGroup != nil {
			Skip("there is no control group to limit memory with: " + noGroup.Error())
		}
		killed, peak, err := podOfC.usage()
		Expect(err).NotTo(HaveOccurred())
		Expect(killed).To(BeZero(), "processes that the kernel ended because there was no memory left")
		AddReportEntry("the processes took at most", fmt.Sprintf("%d MiB, with what the kernel caches for them", peak>>20))
	})
})

// peakMemory is how much memory a process has had at most, in bytes.
func peakMemory(pid int) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, "VmHWM:"); found {
			size, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			return size << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no VmHWM", pid)
}
