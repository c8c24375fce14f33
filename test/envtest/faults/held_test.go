// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/members"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
)

var _ = Describe("FAULT: exports of a peer that vanish by accident", func() {
	const ns, all, vanish = "held", 40, 30
	It("are held, told, and let go when an administrator confirms", func(ctx SpecContext) {
		healthy(ctx)
		for _, m := range []*clusterset.Member{a, b} {
			m.Create(ctx, clusterset.Namespace(ns))
		}
		for i := range all {
			exportOne(ctx, b, ns, fmt.Sprintf("web-%d", i), 8080, fmt.Sprintf("10.98.0.%d", i+1))
		}
		DeferCleanup(func(ctx SpecContext) { withdrawAll(ctx, ns) }, NodeTimeout(2*time.Minute))
		Eventually(ctx, func() int { return len(a.AllBackends(ctx, ns)) }).Should(Equal(all))
		clusterset.AwaitQuiet(ctx, a, b)
		whole, from := a.AllBackends(ctx, ns), time.Now()

		By("deleting 30 of 40 exports in b at once")
		for i := range vanish {
			Expect(b.Client.Delete(ctx, clusterset.Export(ns, fmt.Sprintf("web-%d", i)))).To(Succeed())
		}
		Eventually(ctx, func(g Gomega) {
			var imports mcsv1beta1.ServiceImportList
			g.Expect(a.Client.List(ctx, &imports, client.InNamespace(ns))).To(Succeed())
			count := 0
			for _, i := range imports.Items {
				if meta.IsStatusConditionTrue(i.Status.Conditions, "DeletionHeld") {
					count++
				}
			}
			g.Expect(count).To(BeNumerically(">=", vanish-10), "the first ten fit the budget, unless they came together with others")
		}).Should(Succeed())
		said := a.ImportCondition(ns, fmt.Sprintf("web-%d", vanish-1), "DeletionHeld")
		Eventually(ctx, said).Should(And(ContainSubstring("comity.dev/confirm-deletions"), ContainSubstring("exports of cluster b vanished")))
		Expect(len(a.AllBackends(ctx, ns))).To(BeNumerically(">=", all-10), "of %d endpoints at most the budget may go", len(whole))
		awaitEvent(ctx, members.ReasonDeletionHeld)

		By("undoing one of them")
		last := fmt.Sprintf("web-%d", vanish-1)
		b.Create(ctx, clusterset.Export(ns, last))
		Eventually(ctx, said).Should(BeEmpty())

		By("starting anew, which forgets nothing that stands here")
		kept, other := a.AllBackends(ctx, ns), a.ImportCondition(ns, fmt.Sprintf("web-%d", vanish-2), "DeletionHeld")
		a.Restart(ctx)
		clusterset.AwaitQuiet(ctx, a, b)
		Expect(a.AllBackends(ctx, ns)).To(Equal(kept))
		Eventually(ctx, other).Should(ContainSubstring("exports of cluster b vanished"))

		By("confirming")
		confirm(ctx, a)
		Eventually(ctx, func() int { return len(a.AllBackends(ctx, ns)) }).Should(Equal(all - vanish + 1))
		clusterset.AwaitQuiet(ctx, a, b)
		for _, m := range []*clusterset.Member{a, b} {
			m.HoldInvariants(from, func(w controlplane.Write) bool {
				return w.Namespace == ns || strings.HasPrefix(w.Namespace, "comity-"+m.ID())
			})
		}
	}, SpecTimeout(3*time.Minute))
})
