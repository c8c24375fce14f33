// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/test/install"
)

// shared are the kinds that an exchange namespace holds.
func shared() []client.ObjectList {
	return []client.ObjectList{
		&v1alpha1.ExportRecordList{}, &v1alpha1.ImportRecordList{}, &v1alpha1.MemberRecordList{}, &v1alpha1.NamespaceRecordList{},
		&discoveryv1.EndpointSliceList{}, &coordinationv1.LeaseList{},
	}
}

func BeForbidden() OmegaMatcher {
	return WithTransform(apierrors.IsForbidden, BeTrue())
}

// BeUnauthorized matches the refusal of a token that is no longer good.
func BeUnauthorized() OmegaMatcher {
	return WithTransform(apierrors.IsUnauthorized, BeTrue())
}

// cachedFor is how long an API server may still take a token for good, and slack.
const cachedFor = 20 * time.Second

var _ = Describe("The credential of a peer", Ordered, func() {
	var asB client.Client

	BeforeAll(func(ctx SpecContext) {
		Expect(install.Join(ctx, nil, []join.Cluster{cluster("a"), cluster("b")}, join.Options{})).To(Succeed())
		Expect(install.Join(ctx, nil, []join.Cluster{cluster("a"), cluster("c")}, join.Options{})).To(Succeed())
		Eventually(reading(ctx, "b", "a")).WithTimeout(cachedFor).Should(Succeed())
		asB = connectTo(credential(ctx, "b", "a"))
	})

	It("reads what is shared with every peer and what is scoped to it", func(ctx SpecContext) {
		for _, namespace := range []string{"comity-a", "comity-a-to-b"} {
			for _, list := range shared() {
				Expect(asB.List(ctx, list, client.InNamespace(namespace))).To(Succeed(), "%T in %s", list, namespace)
			}
		}
	})

	It("reads nothing in any other namespace", func(ctx SpecContext) {
		var all corev1.NamespaceList
		Expect(admin("a").List(ctx, &all)).To(Succeed())
		Expect(all.Items).To(ContainElement(HaveField("Name", "comity-a-to-c")))
		for _, namespace := range all.Items {
			if namespace.Name == "comity-a" || namespace.Name == "comity-a-to-b" {
				continue
			}
			for _, list := range shared() {
				Expect(asB.List(ctx, list, client.InNamespace(namespace.Name))).To(BeForbidden(), "%T in %s", list, namespace.Name)
			}
		}
		for _, list := range shared() {
			Expect(asB.List(ctx, list)).To(BeForbidden(), "%T in all namespaces", list)
		}
		Expect(asB.List(ctx, &corev1.NamespaceList{})).To(BeForbidden())
	})

	It("reads no Secret, no ConfigMap and no role", func(ctx SpecContext) {
		for _, namespace := range []string{"comity-a", "comity-a-to-b", join.DefaultNamespace, "default"} {
			for _, list := range []client.ObjectList{&corev1.SecretList{}, &corev1.ConfigMapList{}, &rbacv1.RoleList{}, &corev1.ServiceAccountList{}} {
				Expect(asB.List(ctx, list, client.InNamespace(namespace))).To(BeForbidden(), "%T in %s", list, namespace)
			}
		}
	})

	It("writes nothing, not even where it reads", func(ctx SpecContext) {
		record := &v1alpha1.MemberRecord{Spec: v1alpha1.MemberRecordSpec{ClusterID: "a", ClusterSet: "prod"}}
		record.Namespace, record.Name = "comity-a", "a"
		Expect(admin("a").Create(ctx, record.DeepCopy())).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(admin("a").Delete(ctx, record.DeepCopy())).To(Succeed()) })

		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"version":"9"}}`))
		Expect(asB.Patch(ctx, record.DeepCopy(), patch)).To(BeForbidden())
		Expect(asB.Delete(ctx, record.DeepCopy())).To(BeForbidden())
		for _, namespace := range []string{"comity-a", "comity-a-to-b", "comity-a-to-c", "default"} {
			slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
			slice.Namespace, slice.Name = namespace, "planted"
			Expect(asB.Create(ctx, slice)).To(BeForbidden(), namespace)
		}
	})

	It("renews itself", func(ctx SpecContext) {
		request := &authenticationv1.TokenRequest{}
		Expect(asB.SubResource("token").Create(ctx, account("peer-b"), request)).To(Succeed())

		config := rest.CopyConfig(credential(ctx, "b", "a"))
		config.BearerToken = request.Status.Token
		Expect(connectTo(config).List(ctx, &v1alpha1.ExportRecordList{}, client.InNamespace("comity-a"))).To(Succeed())
	})

	It("does not become another peer, nor Comity itself", func(ctx SpecContext) {
		for _, other := range []string{"peer-c", "comity", "default"} {
			err := asB.SubResource("token").Create(ctx, account(other), &authenticationv1.TokenRequest{})
			Expect(err).To(BeForbidden(), other)
		}
	})
})

var _ = Describe("The agent of a joined cluster", func() {
	It("writes into its own exchange namespaces and reads no namespace's Secrets", func(ctx SpecContext) {
		Expect(install.Join(ctx, nil, []join.Cluster{cluster("a"), cluster("b")}, join.Options{})).To(Succeed())
		config := rest.CopyConfig(clusters["a"])
		config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:comity-system:comity"}
		agent := connectTo(config)

		for _, namespace := range []string{"comity-a", "comity-a-to-b"} {
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "test"}}
			Expect(agent.Create(ctx, lease)).To(Succeed(), namespace)
			Expect(agent.Delete(ctx, lease)).To(BeForbidden(), namespace)
			Expect(admin("a").Delete(ctx, lease)).To(Succeed(), namespace)
			slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "test"}, AddressType: discoveryv1.AddressTypeIPv4}
			Expect(agent.Create(ctx, slice)).To(Succeed(), namespace)
			Expect(agent.Delete(ctx, slice)).To(Succeed(), namespace)
			Expect(agent.List(ctx, &corev1.SecretList{}, client.InNamespace(namespace))).To(BeForbidden(), namespace)
		}
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "test"}}
		Expect(agent.Create(ctx, lease)).To(BeForbidden())
	})
})

func account(name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: join.DefaultNamespace, Name: name}}
}
