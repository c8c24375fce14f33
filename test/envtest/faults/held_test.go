// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/members"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
)

var _ = Describe("FAULT: records of a peer that are deleted by a slip", func() {
	const ns, all, lost = "held", 40, 30
	It("are missing and reported, and what was imported goes only when an administrator confirms", func(ctx SpecContext) {
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
		whole := a.AllBackends(ctx, ns)

		b.Without(ctx, func() { // which would publish them again at once
			By("deleting the records of 30 of 40 exports of b")
			for i := range lost {
				Expect(b.Client.Delete(ctx, &exchangev1alpha1.ExportRecord{ObjectMeta: metav1.ObjectMeta{
					Namespace: model.ExchangeNamespace("b"), Name: model.RecordName(ns, fmt.Sprintf("web-%d", i)),
				}})).To(Succeed())
			}
			Eventually(ctx, held).WithArguments(ns).Should(Equal(lost))
			Expect(a.ImportCondition(ns, "web-0", "DeletionHeld")(NewGomega(Fail), ctx)).
				To(And(ContainSubstring("comity.dev/confirm-deletions"), ContainSubstring("cluster b did not withdraw it")))
			Expect(a.AllBackends(ctx, ns)).To(Equal(whole))
			awaitEvent(ctx, members.ReasonDeletionHeld)

			By("restarting, which forgets nothing")
			a.Restart(ctx)
			Eventually(ctx, held).WithArguments(ns).Should(Equal(lost))
			Expect(a.AllBackends(ctx, ns)).To(Equal(whole))

			By("confirming")
			Eventually(ctx, func() int {
				confirm(ctx, a)
				return len(a.AllBackends(ctx, ns))
			}).WithPolling(2 * time.Second).Should(Equal(all - lost))
		})
		By("publishing them again")
		Eventually(ctx, func() []string { return a.AllBackends(ctx, ns) }).Should(Equal(whole))
		Eventually(ctx, held).WithArguments(ns).Should(BeZero())
	}, SpecTimeout(4*time.Minute))
})

// held counts the imports of a namespace in a that show DeletionHeld.
func held(ctx context.Context, ns string) (count int) {
	GinkgoHelper()
	var imports mcsv1beta1.ServiceImportList
	Expect(a.Client.List(ctx, &imports, client.InNamespace(ns))).To(Succeed())
	for _, i := range imports.Items {
		if meta.IsStatusConditionTrue(i.Status.Conditions, "DeletionHeld") {
			count++
		}
	}
	return count
}

var _ = Describe("FAULT 37: one tenant makes and deletes 60 exports in a minute", func() {
	const busy, other, many = "tenant-busy", "tenant-other", 60
	It("delays no un-export of another tenant", func(ctx SpecContext) {
		healthy(ctx)
		for _, m := range []*clusterset.Member{a, b} {
			m.Create(ctx, clusterset.Namespace(busy), clusterset.Namespace(other))
		}
		DeferCleanup(func(ctx SpecContext) {
			withdrawAll(ctx, busy)
			withdrawAll(ctx, other)
		}, NodeTimeout(3*time.Minute))
		exportOne(ctx, b, other, "web", 8080, "10.95.1.1")
		Eventually(ctx, a.Backends(other, "web")).Should(Equal([]string{"b/10.95.1.1"}))
		for i := range many {
			exportOne(ctx, b, busy, fmt.Sprintf("web-%d", i), 8080, fmt.Sprintf("10.95.0.%d", i+1))
		}
		Eventually(ctx, func() int { return len(a.AllBackends(ctx, busy)) }).Should(Equal(many))
		Expect(b.Client.DeleteAllOf(ctx, &mcsv1beta1.ServiceExport{}, client.InNamespace(busy))).To(Succeed())
		withdraw(ctx, other, "web")
		Eventually(ctx, func() []string { return a.AllBackends(ctx, other) }).WithTimeout(5 * time.Second).Should(BeEmpty())
		Eventually(ctx, func() []string { return a.AllBackends(ctx, busy) }).Should(BeEmpty())
		Expect(held(ctx, busy) + held(ctx, other)).To(BeZero())
	}, SpecTimeout(3*time.Minute))
})
