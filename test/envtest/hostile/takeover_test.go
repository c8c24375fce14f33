// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// settled is how old an import is when its takeover is held, and a little more.
const settled = 2*time.Minute + 5*time.Second

var _ = Describe("FAULT 28: a member that publishes another's Service as the oldest", func() {
	It("changes nothing of what is served, and is named in both clusters, until an administrator confirms it", func(ctx SpecContext) {
		key := client.ObjectKey{Namespace: honest, Name: "from-c"}
		imported := func(g Gomega) *mcsv1beta1.ServiceImport {
			i := &mcsv1beta1.ServiceImport{}
			g.Expect(victim.client.Get(ctx, key, i)).To(Succeed())
			return i
		}
		Eventually(ctx, func(g Gomega) {
			g.Expect(time.Since(imported(g).CreationTimestamp.Time)).To(BeNumerically(">", settled))
		}).WithTimeout(settled + soon).Should(Succeed())
		before := imported(Default)
		own := func(g Gomega, ctx context.Context) []string {
			return slices.DeleteFunc(victim.backends(honest, "from-c")(g, ctx), func(backend string) bool { return backend[:2] != "c/" })
		}
		served := own(Default, ctx)
		Expect(served).NotTo(BeEmpty())

		oldest := set(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).Format(time.RFC3339), "spec", "exportedAt")
		uid := set("28282828-2828-4828-8828-282828282828", "spec", "exportUID")
		copied := slice(key, "from-c-x", []string{attacker.address(228)})
		condition := func(ctx SpecContext, want string) {
			GinkgoHelper()
			Eventually(ctx, func(g Gomega) {
				held := meta.FindStatusCondition(imported(g).Status.Conditions, "TakeoverHeld")
				g.Expect(held).NotTo(BeNil())
				g.Expect(held.Message).To(And(ContainSubstring("cluster b"), ContainSubstring(want), ContainSubstring("comity.dev/confirm-takeover=b/28282828")))
			}).Should(Succeed())
		}
		unchanged := func() {
			GinkgoHelper()
			Consistently(ctx, own).WithTimeout(quiet).Should(Equal(served))
			Expect(imported(Default).Spec).To(Equal(before.Spec))
		}
		for _, attack := range []struct {
			changes []change
			want    string
		}{
			{[]change{set([]any{port("x", 80, "TCP")}, "spec", "ports")}, `port "http"`},
			{[]change{set("Headless", "spec", "type")}, "type: ClusterSetIP to Headless"},
		} {
			forged := record(key, append(attack.changes, oldest, uid)...)
			put(ctx, forged, copied)
			condition(ctx, attack.want)
			unchanged()
			Eventually(ctx, func(g Gomega) {
				export := &mcsv1beta1.ServiceExport{}
				g.Expect(neighbor.client.Get(ctx, key, export)).To(Succeed())
				available := meta.FindStatusCondition(export.Status.Conditions, "Available")
				g.Expect(available).NotTo(BeNil())
				g.Expect(available.Message).To(And(ContainSubstring(model.ReasonTakeoverHeld), Not(ContainSubstring("cluster b"))))
			}).Should(Succeed())
		}

		By("confirming it for another cluster, then as the condition says")
		put(ctx, record(key, set("ClientIP", "spec", "sessionAffinity"), oldest, uid))
		condition(ctx, "sessionAffinity: None to ClientIP")
		confirm := func(export string) {
			GinkgoHelper()
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, model.AnnotationConfirmTakeover, export)
			Expect(victim.client.Patch(ctx, imported(Default), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
		}
		confirm("c/28282828-2828-4828-8828-282828282828")
		unchanged()
		held := meta.FindStatusCondition(imported(Default).Status.Conditions, "TakeoverHeld")
		Expect(held).NotTo(BeNil())
		_, export, _ := strings.Cut(held.Message, model.AnnotationConfirmTakeover+"=")
		export, _, _ = strings.Cut(export, " ")
		confirm(export)
		notHeld := func(g Gomega, affinity corev1.ServiceAffinity) {
			i := imported(g)
			g.Expect(meta.FindStatusCondition(i.Status.Conditions, "TakeoverHeld")).To(BeNil())
			g.Expect(i.Spec.SessionAffinity).To(Equal(affinity))
		}
		Eventually(ctx, notHeld).WithArguments(corev1.ServiceAffinityClientIP).Should(Succeed())
		Expect(imported(Default).Annotations[model.AnnotationExports]).To(HavePrefix(export))
		Consistently(ctx, own).WithTimeout(quiet).Should(Equal(served))

		withdraw(ctx, record(key), copied)
		Eventually(ctx, notHeld).WithArguments(corev1.ServiceAffinityNone).Should(Succeed())
		unchanged()
		everythingElseWorks(ctx, true)
	}, SpecTimeout(5*time.Minute))
})
