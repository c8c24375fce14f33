// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/members"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
)

var _ = Describe("FAULT 32: what is accepted from a member becomes narrower while its MemberRecord is broken", func() {
	const ns, within, outside = "accepted", "10.93.0.1", "10.94.0.1"
	It("applies to what was imported before", func(ctx SpecContext) {
		healthy(ctx)
		for _, m := range []*clusterset.Member{a, b} {
			m.Create(ctx, clusterset.Namespace(ns))
		}
		DeferCleanup(func(ctx SpecContext) { withdrawAll(ctx, ns) }, NodeTimeout(2*time.Minute))
		annotate := func(annotation, value string) (before string) {
			GinkgoHelper()
			clusterset.Change(ctx, a, peerB(), func(s *corev1.Secret) {
				before = s.Annotations[annotation]
				if value == "" {
					delete(s.Annotations, annotation)
				} else {
					s.Annotations[annotation] = value
				}
			})
			return before
		}
		exportOne(ctx, b, ns, "web", 8080, within, outside)
		whole := []string{"b/" + within, "b/" + outside}
		Eventually(ctx, a.Backends(ns, "web")).Should(Equal(whole))
		clusterset.AwaitQuiet(ctx, a, b)

		b.Without(ctx, func() { // which would correct its record at once
			By("breaking the MemberRecord")
			key := client.ObjectKey{Namespace: model.ExchangeNamespace("b"), Name: "b"}
			record := &exchangev1alpha1.MemberRecord{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
			var valid string
			clusterset.Change(ctx, b, record, func(r *exchangev1alpha1.MemberRecord) { valid, r.Spec.ClusterSet = r.Spec.ClusterSet, "another" })
			awaitEvent(ctx, members.ReasonMemberUnverified)
			Expect(a.AllBackends(ctx, ns)).To(Equal(whole))

			By("accepting fewer addresses")
			before := annotate(model.AnnotationAcceptedCIDRs, "10.93.0.0/16")
			DeferCleanup(func(ctx SpecContext) {
				clusterset.Change(ctx, a, peerB(), func(s *corev1.Secret) { s.Annotations[model.AnnotationAcceptedCIDRs] = before })
			})
			Eventually(ctx, a.Backends(ns, "web")).Should(Equal([]string{"b/" + within}))

			By("accepting another namespace alone")
			all := annotate(model.AnnotationAcceptedNamespaces, "another-*")
			Eventually(ctx, func() []string { return a.AllBackends(ctx, ns) }).Should(BeEmpty())

			By("accepting everything again, and mending the record")
			annotate(model.AnnotationAcceptedNamespaces, all)
			annotate(model.AnnotationAcceptedCIDRs, before)
			clusterset.Change(ctx, b, record, func(r *exchangev1alpha1.MemberRecord) { r.Spec.ClusterSet = valid })
			Eventually(ctx, a.Backends(ns, "web")).Should(Equal(whole))
		})
	}, SpecTimeout(3*time.Minute))
})
