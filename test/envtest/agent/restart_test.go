// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// steady is how long a restarted agent must have written nothing, beyond the
// moment in which it has looked at everything.
const steady = 1500 * time.Millisecond

// variety exports from a, and some of it from b too, one Service of each kind:
// what a restart would most likely write again.
func variety(ctx context.Context, ns string) {
	GinkgoHelper()
	a, b := members["a"], members["b"]
	for _, m := range []*member{a, b} {
		for n := range 4 {
			name := fmt.Sprint("web-", n)
			m.create(ctx, service(ns, name), endpoints(ns, name, name+"-x", newAddress(), newAddress()), endpoints(ns, name, name+"-y", newAddress()), export(ns, name))
		}
		m.create(ctx, headless(ns, "db"), endpoints(ns, "db", "db-x", newAddress()), export(ns, "db"))
	}
	typed := service(ns, "front")
	typed.Spec.Type, typed.Spec.SessionAffinity = corev1.ServiceTypeLoadBalancer, corev1.ServiceAffinityClientIP
	annotated := export(ns, "front")
	annotated.Spec.ExportedLabels = map[string]string{"team": "front"}
	annotated.Spec.ExportedAnnotations = map[string]string{"example.com/note": "kept"}
	a.create(ctx, typed, endpoints(ns, "front", "front-x", newAddress()), annotated)
	a.create(ctx, service(ns, "private"), endpoints(ns, "private", "private-x", newAddress()), scoped(ns, "private", "b"))
	// The agents do not agree on these two.
	disputed := service(ns, "disputed")
	disputed.Spec.Ports[0].Port = 81
	a.create(ctx, service(ns, "disputed"), export(ns, "disputed"))
	b.create(ctx, disputed, export(ns, "disputed"), export(ns, "no-service"))

	for n := range 4 {
		Eventually(members["c"].backends(ns, fmt.Sprint("web-", n))).WithContext(ctx).Should(HaveLen(6))
	}
	Eventually(members["c"].backends(ns, "db")).WithContext(ctx).Should(HaveLen(2))
	Eventually(b.backends(ns, "private")).WithContext(ctx).Should(HaveLen(1))
	Eventually(b.condition(ns, "disputed", string(mcsv1beta1.ServiceExportConditionConflict))).WithContext(ctx).Should(HavePrefix("True/"))
	awaitConverged(ids...)
	Expect(members["c"].backends(ns, "private")(Default, ctx)).To(BeEmpty(), "the scope is b")
}

var _ = Describe("A converged clusterset with exports of each kind", Ordered, func() {
	BeforeAll(func(ctx SpecContext) { variety(ctx, newNamespace(ctx, "quiet")) })

	It("has all metrics that alerts and dashboard query", expectMetrics, SpecTimeout(2*time.Minute))

	// FAULT 11, whose figures `make bench ARGS=restart` measures: a restart deletes nothing.
	It("writes nothing when agents that were killed, or asked to end, start again", func(ctx SpecContext) {
		from := time.Now()
		for _, id := range others("b") { // b imports and exports
			Expect(members[id].agent.Kill()).To(Succeed())
			members[id].expireLease(ctx)
		}
		Expect(members["b"].agent.Stop()).To(Succeed())
		for _, m := range members {
			Expect(m.agent.Start()).To(Succeed())
		}
		for _, m := range members {
			Expect(m.agent.WaitReady(ctx, ready)).To(Succeed())
			Eventually(func() error { return m.notConverged() }).WithTimeout(ready).Should(Succeed())
		}
		Consistently(func() []string { return writesSince(from) }, steady, steady/5).Should(BeEmpty(), explained(from))
		leases, told := 0, 0
		for _, m := range members {
			_, election := m.agentWrites(from)
			for _, w := range election {
				if w.Resource == "events" {
					told++
				} else {
					leases++
				}
			}
		}
		AddReportEntry(fmt.Sprintf("writes by comity after a restart on a converged clusterset: %d (%d lease renewals, %d events of leader election)",
			len(writesSince(from)), leases, told))
		everythingElseWorks(ctx)
	})
})
