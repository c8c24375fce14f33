// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

var _ = Describe("FAULT 28, 39 and 40: a member that publishes another's new Service as the oldest", func() {
	It("changes nothing of what is served, also when the other one makes its export again, and is named in both clusters, until an administrator confirms it", func(ctx SpecContext) {
		key := client.ObjectKey{Namespace: "taken", Name: "web"}
		for _, m := range []*member{victim, neighbor} {
			m.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace}})
		}
		neighbor.create(ctx, service(key.Namespace, key.Name), endpoints(key.Namespace, key.Name, neighbor.address(228)), serviceExport(key.Namespace, key.Name))
		own := func(g Gomega, ctx context.Context) []string {
			return slices.DeleteFunc(victim.backends(key.Namespace, key.Name)(g, ctx), func(backend string) bool { return backend[:2] != "c/" })
		}
		served := []string{"c/" + neighbor.address(228)}
		Eventually(ctx, own).Should(Equal(served))
		imported := func(g Gomega) *mcsv1beta1.ServiceImport {
			i := &mcsv1beta1.ServiceImport{}
			g.Expect(victim.client.Get(ctx, key, i)).To(Succeed())
			return i
		}
		var before *mcsv1beta1.ServiceImport
		Eventually(ctx, func(g Gomega) {
			before = imported(g)
			g.Expect(before.Spec.IPs).NotTo(BeEmpty())
		}).Should(Succeed())

		oldest := set(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).Format(time.RFC3339), "spec", "exportedAt")
		uid := set("28282828-2828-4828-8828-282828282828", "spec", "exportUID")
		copied := slice(key, "web-b", []string{attacker.address(228)})
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.IgnoreNotFound(neighbor.client.Delete(ctx, serviceExport(key.Namespace, key.Name)))).To(Succeed())
			retreat(ctx, []forged{record(key), copied}, key)
		})
		held := func(g Gomega) string {
			c := meta.FindStatusCondition(imported(g).Status.Conditions, "TakeoverHeld")
			g.Expect(c).NotTo(BeNil())
			return c.Message
		}
		unchanged := func() {
			GinkgoHelper()
			Consistently(ctx, own).WithTimeout(quiet).Should(Equal(served))
			Expect(imported(Default).Spec).To(Equal(before.Spec))
		}
		waits := func(want string) {
			GinkgoHelper()
			Eventually(ctx, held).Should(And(ContainSubstring("cluster b"), ContainSubstring(want), ContainSubstring("kubectl comity confirm takeover taken/web --from b")))
			unchanged()
			Eventually(ctx, func(g Gomega) {
				export := &mcsv1beta1.ServiceExport{}
				g.Expect(neighbor.client.Get(ctx, key, export)).To(Succeed())
				available := meta.FindStatusCondition(export.Status.Conditions, "Available")
				g.Expect(available).NotTo(BeNil())
				g.Expect(available.Message).To(And(ContainSubstring(model.ReasonTakeoverHeld), Not(ContainSubstring("cluster b"))))
			}).Should(Succeed())
		}
		put(ctx, record(key, set([]any{port("x", 80, "TCP")}, "spec", "ports"), oldest, uid), copied)
		waits(`port "http"`)
		put(ctx, record(key, set("Headless", "spec", "type"), oldest, uid))
		waits("type: ClusterSetIP to Headless")

		By("deleting the export that decides, and creating it again")
		Expect(neighbor.client.Delete(ctx, serviceExport(key.Namespace, key.Name))).To(Succeed())
		Eventually(ctx, own).Should(BeEmpty())
		Expect(imported(Default).Spec).To(Equal(before.Spec))
		neighbor.create(ctx, serviceExport(key.Namespace, key.Name))
		Eventually(ctx, own).Should(Equal(served))
		waits("type: ClusterSetIP to Headless")

		By("confirming it for another cluster, then for the one that waits")
		put(ctx, record(key, set("ClientIP", "spec", "sessionAffinity"), oldest, uid))
		waits("sessionAffinity: None to ClientIP")
		confirm := func(export string) {
			GinkgoHelper()
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, model.AnnotationConfirmTakeover, export)
			Expect(victim.client.Patch(ctx, imported(Default), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
		}
		confirm("c/28282828-2828-4828-8828-282828282828")
		unchanged()
		Expect(held(Default)).NotTo(BeEmpty())
		confirm("b/28282828-2828-4828-8828-282828282828")
		Eventually(ctx, func(g Gomega) {
			i := imported(g)
			g.Expect(meta.FindStatusCondition(i.Status.Conditions, "TakeoverHeld")).To(BeNil())
			g.Expect(i.Spec.SessionAffinity).To(Equal(corev1.ServiceAffinityClientIP))
			g.Expect(i.Spec.IPs).To(Equal(before.Spec.IPs))
		}).Should(Succeed())
		Consistently(ctx, own).WithTimeout(quiet).Should(Equal(served))
		everythingElseWorks(ctx, true)
	}, SpecTimeout(3*time.Minute))
})
