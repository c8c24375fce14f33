// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

var _ = Describe("an exchange namespace that somebody made before the join", Ordered, func() {
	const name = "comity-early-to-late"
	// Clusters of their own: Disconnect deletes the exchange namespaces of
	// both, and nobody finishes deletions here.
	early, late := cluster("a"), cluster("c")
	early.ID, late.ID = "early", "late"
	tenant := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "tenant"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "mallory"}},
	}

	BeforeAll(func(ctx SpecContext) {
		early.RESTConfig, late.RESTConfig = clusters["a"], clusters["c"]
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			model.LabelExchangeFrom: "early", model.LabelExchangeTo: "late",
		}}}
		Expect(admin("a").Create(ctx, namespace)).To(Succeed())
	})

	It("is refused while it gives others rights, with forged Roles too", func(ctx SpecContext) {
		Expect(admin("a").Create(ctx, tenant)).To(Succeed())
		const message = "namespace comity-early-to-late exists with the labels of an exchange namespace, but kubectl comity join did not make it, and RoleBinding "
		refusedFor(ctx, early, late, message+"tenant gives others rights in it; delete the namespace")
		By("a Role and a RoleBinding of the names that join uses")
		meta := metav1.ObjectMeta{Namespace: name, Name: "comity-exchange-writer"}
		forged := &rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: join.DefaultNamespace, Name: join.DefaultServiceAccount}},
		}
		Expect(admin("a").Create(ctx, &rbacv1.Role{ObjectMeta: meta})).To(Succeed())
		Expect(admin("a").Create(ctx, forged)).To(Succeed())
		refusedFor(ctx, early, late, message)
		Expect(admin("a").Delete(ctx, forged)).To(Succeed())
	})

	It("is used once nobody else has rights in it, as after a join that was interrupted", func(ctx SpecContext) {
		Expect(admin("a").Delete(ctx, tenant)).To(Succeed())
		Expect(join.Connect(ctx, early, late, join.Options{})).To(Succeed())
		By("and then it is the join's, whatever rights tools add in every namespace")
		again := tenant.DeepCopy()
		again.ResourceVersion, again.UID = "", ""
		Expect(admin("a").Create(ctx, again)).To(Succeed())
		Expect(join.Connect(ctx, early, late, join.Options{})).To(Succeed())
		Expect(join.Disconnect(ctx, early, late, join.Options{})).To(Succeed())
	})
})
