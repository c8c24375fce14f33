// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
)

var _ = Describe("FAULT 32: what is accepted from a member becomes narrower while its MemberRecord is broken", func() {
	const ns, within, outside = "accepted", "10.93.0.1", "10.94.0.1"
	It("applies to what was imported before", func(ctx SpecContext) {
		setUp(ctx, ns)
		exportOne(ctx, b, ns, "web", 8080, within, outside)
		whole := []string{"b/" + within, "b/" + outside}
		Eventually(ctx, a.Backends(ns, "web")).Should(Equal(whole))
		before := clusterset.Get(ctx, a, clusterset.Peer("b")).Spec.AcceptedCIDRs
		acceptAll := func(ctx context.Context) {
			a.ChangePeer(ctx, "b", func(s *exchangev1alpha1.PeerSpec) { s.AcceptedCIDRs, s.AcceptedNamespaces = before, nil })
		}
		DeferCleanup(acceptAll)

		b.Without(ctx, func() { // which would correct its record at once
			By("breaking the MemberRecord")
			record := &exchangev1alpha1.MemberRecord{ObjectMeta: metav1.ObjectMeta{Namespace: model.ExchangeNamespace("b"), Name: "b"}}
			var valid string
			clusterset.Change(ctx, b, record, func(r *exchangev1alpha1.MemberRecord) { valid, r.Spec.ClusterSet = r.Spec.ClusterSet, "another" })
			awaitEvent(ctx, remote.ReasonMemberUnverified)
			Expect(a.AllBackends(ctx, ns)).To(Equal(whole))

			By("accepting fewer addresses")
			a.ChangePeer(ctx, "b", func(s *exchangev1alpha1.PeerSpec) { s.AcceptedCIDRs = []string{"10.93.0.0/16"} })
			Eventually(ctx, a.Backends(ns, "web")).Should(Equal([]string{"b/" + within}))

			By("accepting another namespace alone")
			a.ChangePeer(ctx, "b", func(s *exchangev1alpha1.PeerSpec) { s.AcceptedNamespaces = &[]string{"another-*"} })
			Eventually(ctx, a.Backends(ns, "web")).Should(BeEmpty())

			By("accepting everything again, and mending the record")
			acceptAll(ctx)
			clusterset.Change(ctx, b, record, func(r *exchangev1alpha1.MemberRecord) { r.Spec.ClusterSet = valid })
			Eventually(ctx, a.Backends(ns, "web")).Should(Equal(whole))
		})
	}, SpecTimeout(3*time.Minute))
})
