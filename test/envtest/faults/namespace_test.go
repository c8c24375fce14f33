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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
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
		&exchangev1alpha1.ImportRecord{}, &coordinationv1.Lease{}, &rbacv1.RoleBinding{}, &rbacv1.Role{}, &corev1.Secret{}, &corev1.ServiceAccount{},
	} {
		// A kind whose definition is gone has no objects.
		Expect(m.Client.DeleteAllOf(ctx, kind, client.InNamespace(name))).To(Or(Succeed(), Satisfy(meta.IsNoMatchError), Satisfy(apierrors.IsNotFound)))
	}
	gone := clusterset.Get(ctx, m, clusterset.Namespace(name))
	gone.Spec.Finalizers = []corev1.FinalizerName{}
	_, err = typed.CoreV1().Namespaces().Finalize(ctx, gone, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

var _ = Describe("FAULT 26: the exchange namespaces of a peer are deleted", func() {
	const ns, exports = "slip-exchange", 3
	It("no importer loses an endpoint, also after a restart; joining again brings everything back, and what ended meanwhile is missing", func(ctx SpecContext) {
		setUp(ctx, ns)
		for i := range exports {
			exportOne(ctx, b, ns, fmt.Sprintf("web-%d", i), 8080, fmt.Sprintf("10.93.1.%d", i+1))
		}
		all := func() []string { return a.AllBackends(ctx, ns) }
		Eventually(ctx, all).Should(HaveLen(exports))
		whole := all()

		afterFailure(func(ctx context.Context) { set.Join(ctx, "a", "b") })
		for _, name := range []string{model.ScopedExchangeNamespace("b", "a"), model.ExchangeNamespace("b")} {
			deleteNamespace(ctx, b, name)
		}
		Eventually(ctx, a.PeerCondition("b", exchangev1alpha1.PeerConnected)).Should(HavePrefix("False/"))
		kept(ctx, a, ns, whole, "the exchange namespaces are deleted")
		Expect(b.Client.Delete(ctx, clusterset.Export(ns, "web-0"))).To(Succeed())
		a.KillAgent(ctx)
		a.AwaitLeader(ctx)
		kept(ctx, a, ns, whole, "after a restart")

		By("joining again")
		set.Join(ctx, "a", "b")
		Eventually(ctx, a.PeerCondition("b", exchangev1alpha1.PeerConnected)).WithTimeout(nextTry).Should(HavePrefix("True/"))
		for i := 1; i < exports; i++ { // whose record may be the last one that is published again
			change(ctx, b, ns, fmt.Sprintf("web-%d", i), fmt.Sprintf("10.93.2.%d", i+1))
			Eventually(ctx, a.Backends(ns, fmt.Sprintf("web-%d", i))).Should(Equal([]string{fmt.Sprintf("b/10.93.2.%d", i+1)}))
		}
		By("confirming what ended meanwhile, of which no record was left that could state it")
		Eventually(ctx, missing(a, ns)).Should(ConsistOf("web-0"))
		a.ConfirmMissing(ctx, "b")
		Eventually(ctx, a.Backends(ns, "web-0")).Should(BeEmpty())
		Eventually(ctx, held(a, ns)).Should(BeEmpty())
	}, SpecTimeout(3*time.Minute))
})
