// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
)

// deleteNamespace deletes a namespace of m and what is in it, as the namespace
// controller does, which does not run here.
func deleteNamespace(ctx context.Context, m *clusterset.Member, name string) {
	GinkgoHelper()
	typed, err := kubernetes.NewForConfig(m.RESTConfig())
	Expect(err).NotTo(HaveOccurred())
	Expect(m.Client.Delete(ctx, clusterset.Namespace(name))).To(Succeed())
	for _, kind := range []client.Object{
		&exchangev1alpha1.ExportRecord{}, &discoveryv1.EndpointSlice{}, &exchangev1alpha1.MemberRecord{}, &exchangev1alpha1.NamespaceRecord{},
		&exchangev1alpha1.ImportRecord{}, &coordinationv1.Lease{}, &rbacv1.RoleBinding{}, &rbacv1.Role{},
	} {
		Expect(m.Client.DeleteAllOf(ctx, kind, client.InNamespace(name))).To(Succeed())
	}
	gone := clusterset.Get(ctx, m, clusterset.Namespace(name))
	gone.Spec.Finalizers = []corev1.FinalizerName{}
	_, err = typed.CoreV1().Namespaces().Finalize(ctx, gone, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

var _ = DescribeTable("FAULT 26: the exchange namespaces of a peer are deleted,",
	func(ctx SpecContext, exports int) {
		ns := fmt.Sprintf("slip-%d", exports)
		healthy(ctx)
		for _, m := range []*clusterset.Member{a, b} {
			m.Create(ctx, clusterset.Namespace(ns))
		}
		DeferCleanup(func(ctx SpecContext) { withdrawAll(ctx, ns) }, NodeTimeout(2*time.Minute))
		for i := range exports {
			exportOne(ctx, b, ns, fmt.Sprintf("web-%d", i), 8080, fmt.Sprintf("10.93.%d.%d", exports, i+1))
		}
		all := func() []string { return a.AllBackends(ctx, ns) }
		Eventually(ctx, all).Should(HaveLen(exports))
		whole := all()

		By("deleting them")
		DeferCleanup(func(ctx SpecContext) { set.Join(ctx, "a", "b") }, NodeTimeout(time.Minute))
		for _, name := range []string{model.ScopedExchangeNamespace("b", "a"), model.ExchangeNamespace("b")} {
			deleteNamespace(ctx, b, name)
			Consistently(ctx, all).WithTimeout(5*time.Second).Should(Equal(whole), "after %s", name)
		}
		By("restarting, which forgets nothing")
		a.Restart(ctx)
		Consistently(ctx, all).WithTimeout(5 * time.Second).Should(Equal(whole))

		By("joining again")
		set.Join(ctx, "a", "b")
		for i := range exports { // whose record may be the last one that is published again
			change(ctx, b, ns, fmt.Sprintf("web-%d", i), fmt.Sprintf("10.93.%d.%d", exports+1, i+1))
		}
		Consistently(ctx, all).WithTimeout(5 * time.Second).Should(HaveLen(exports))
		for i := range exports {
			Eventually(ctx, a.Backends(ns, fmt.Sprintf("web-%d", i))).Should(Equal([]string{fmt.Sprintf("b/10.93.%d.%d", exports+1, i+1)}))
		}
		Eventually(ctx, a.ImportCondition(ns, "web-0", "DeletionHeld")).Should(BeEmpty())
	},
	Entry("with 1 export", SpecTimeout(3*time.Minute), 1),
	Entry("with 5 exports", SpecTimeout(3*time.Minute), 5),
	Entry("with 50 exports", SpecTimeout(4*time.Minute), 50),
)

var _ = It("FAULT 26: an export that ends while the exchange namespaces of its cluster are deleted is withdrawn once they are back", func(ctx SpecContext) {
	const ns = "slip-ended"
	healthy(ctx)
	for _, m := range []*clusterset.Member{a, b} {
		m.Create(ctx, clusterset.Namespace(ns))
	}
	DeferCleanup(func(ctx SpecContext) { withdrawAll(ctx, ns) }, NodeTimeout(2*time.Minute))
	for i, name := range []string{"stays", "ends"} {
		exportOne(ctx, b, ns, name, 8080, fmt.Sprintf("10.93.60.%d", i+1))
	}
	all := func() []string { return a.AllBackends(ctx, ns) }
	Eventually(ctx, all).Should(Equal([]string{"b/10.93.60.1", "b/10.93.60.2"}))
	DeferCleanup(func(ctx SpecContext) { set.Join(ctx, "a", "b") }, NodeTimeout(time.Minute))
	for _, name := range []string{model.ScopedExchangeNamespace("b", "a"), model.ExchangeNamespace("b")} {
		deleteNamespace(ctx, b, name)
	}
	Expect(b.Client.Delete(ctx, clusterset.Export(ns, "ends"))).To(Succeed())
	Consistently(ctx, all).WithTimeout(5 * time.Second).Should(HaveLen(2))

	By("joining again")
	set.Join(ctx, "a", "b")
	Eventually(ctx, all).Should(Equal([]string{"b/10.93.60.1"}))
	record := &exchangev1alpha1.ExportRecord{}
	Expect(b.Client.Get(ctx, client.ObjectKey{Namespace: model.ExchangeNamespace("b"), Name: model.RecordName(ns, "ends")}, record)).To(Succeed())
	Expect(record.Spec.Withdrawn).To(BeTrue())
}, SpecTimeout(3*time.Minute))
