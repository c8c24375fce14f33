// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

var _ = Describe("FAULT: records of a peer that are deleted by a slip", func() {
	const ns = "lost"
	It("are missing and reported, and what was imported goes only when an administrator confirms", func(ctx SpecContext) {
		setUp(ctx, ns)
		names := []string{"stays", "first", "second"}
		for i, name := range names {
			exportOne(ctx, b, ns, name, 8080, fmt.Sprintf("10.98.0.%d", i+1))
		}
		all := func() []string { return a.AllBackends(ctx, ns) }
		Eventually(ctx, all).Should(HaveLen(3))
		whole := all()

		b.Without(ctx, func() { // which would publish them again at once
			for _, name := range names[1:] {
				Expect(b.Client.Delete(ctx, &exchangev1alpha1.ExportRecord{ObjectMeta: metav1.ObjectMeta{
					Namespace: model.ExchangeNamespace("b"), Name: model.RecordName(ns, name),
				}})).To(Succeed())
			}
			Eventually(ctx, missing(a, ns)).Should(ConsistOf("first", "second"))
			Expect(held(a, ns)(Default, ctx)).To(HaveEach(ContainSubstring("kubectl comity confirm missing b")))
			Eventually(ctx, a.PeerCondition("b", exchangev1alpha1.PeerComplete)).Should(And(HavePrefix("False/Missing: "), ContainSubstring(": 2, such as lost/first"), ContainSubstring("kubectl comity confirm missing b")))
			awaitEvent(ctx, model.ReasonMissing)
			Expect(all()).To(Equal(whole))

			By("restarting, which forgets nothing")
			a.KillAgent(ctx)
			a.AwaitLeader(ctx)
			kept(ctx, a, ns, whole, "after a restart")
			Eventually(ctx, missing(a, ns)).Should(ConsistOf("first", "second"))

			By("confirming")
			a.ConfirmMissing(ctx, "b")
			Eventually(ctx, all).Should(Equal(whole[:1]))
		})
		By("publishing them again")
		Eventually(ctx, all).Should(Equal(whole))
		Eventually(ctx, held(a, ns)).Should(BeEmpty())
		Eventually(ctx, a.PeerCondition("b", exchangev1alpha1.PeerComplete)).Should(HavePrefix("True/"))
	}, SpecTimeout(3*time.Minute))
})
