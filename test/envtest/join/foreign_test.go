// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/install"
)

var _ = Describe("an exchange namespace that somebody made before the join", Ordered, func() {
	const name = "comity-early-to-late"
	// Clusters of their own: Disconnect deletes the exchange namespaces of
	// both, and nobody finishes deletions here.
	early, late := cluster("a"), cluster("c")
	early.ID, late.ID = "early", "late"
	mallory := rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "mallory"}
	tenant := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "tenant"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{mallory},
	}

	BeforeAll(func(ctx SpecContext) {
		early.RESTConfig, late.RESTConfig = clusters["a"], clusters["c"]
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			model.LabelExchangeFrom: "early", model.LabelExchangeTo: "late",
		}}}
		Expect(admin("a").Create(ctx, namespace)).To(Succeed())
	})

	It("is refused while it gives others rights, with forged Roles too", func(ctx SpecContext) {
		Expect(admin("a").Create(ctx, again(tenant))).To(Succeed())
		const message = "namespace comity-early-to-late exists, it is not recorded that kubectl comity join made it, and RoleBinding "
		refusedFor(ctx, early, late, message+"tenant gives others rights in it; delete the namespace")
		By("a Role that joins make, with the rights that it has then, and a RoleBinding of the name that they use")
		rules := []rbacv1.PolicyRule{{
			APIGroups: []string{"exchange.comity.dev"}, Resources: []string{"exportrecords", "importrecords", "memberrecords", "namespacerecords"},
			Verbs: []string{"get", "list", "watch"},
		}}
		meta := metav1.ObjectMeta{Namespace: name, Name: "comity-exchange-reader"}
		Expect(admin("a").Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules})).To(Succeed())
		Expect(admin("a").Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name}, Subjects: []rbacv1.Subject{mallory},
		})).To(Succeed())
		refusedFor(ctx, early, late, message)
		Expect(admin("a").Delete(ctx, again(tenant))).To(Succeed())
		refusedFor(ctx, early, late, message+"comity-exchange-reader gives others rights in it")
		By("the account of another peer, which reads with this RoleBinding what is for every peer")
		Expect(admin("a").DeleteAllOf(ctx, &rbacv1.RoleBinding{}, client.InNamespace(name))).To(Succeed())
		third := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "peer-third"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "comity-exchange-reader"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: join.DefaultNamespace, Name: "peer-third"}},
		}
		Expect(admin("a").Create(ctx, third)).To(Succeed())
		refusedFor(ctx, early, late, message+"peer-third gives others rights in it")
		Expect(admin("a").DeleteAllOf(ctx, &rbacv1.RoleBinding{}, client.InNamespace(name))).To(Succeed())
	})

	It("is used once nobody else has rights in it, as after a join that was interrupted", func(ctx SpecContext) {
		Expect(install.Join(ctx, nil, []join.Cluster{early, late}, join.Options{})).To(Succeed())
		By("and then it is the join's, whatever rights tools add in every namespace")
		Expect(admin("a").Create(ctx, again(tenant))).To(Succeed())
		before := versions(ctx)
		Expect(install.Join(ctx, nil, []join.Cluster{early, late}, join.Options{})).To(Succeed())
		Expect(versions(ctx)).To(Equal(before))
	})

	It("is not the join's if it was made again, or if an earlier version did not record it and others have rights", func(ctx SpecContext) {
		agentsRemove()
		record := func(uid any) {
			role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: join.DefaultNamespace, Name: "peer-late"}}
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{"namespace.comity.dev/" + name: uid}}})
			Expect(err).NotTo(HaveOccurred())
			Expect(admin("a").Patch(ctx, role, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
		}
		const message = "it is not recorded that kubectl comity join made it, and RoleBinding tenant"
		record("01234567-89ab-cdef-0123-456789abcdef")
		refusedFor(ctx, early, late, message)
		record(nil)
		refusedFor(ctx, early, late, message)
		By("with the RoleBindings of a join alone it is recorded")
		Expect(admin("a").Delete(ctx, again(tenant))).To(Succeed())
		Expect(install.Join(ctx, nil, []join.Cluster{early, late}, join.Options{})).To(Succeed())
		Expect(admin("a").Create(ctx, again(tenant))).To(Succeed())
		Expect(install.Join(ctx, nil, []join.Cluster{early, late}, join.Options{})).To(Succeed())
		Expect(join.Disconnect(ctx, nil, early, []join.Cluster{late}, join.Options{})).To(Succeed())
	})
})

// again is a RoleBinding as it is created.
func again(binding *rbacv1.RoleBinding) *rbacv1.RoleBinding {
	out := binding.DeepCopy()
	out.ResourceVersion, out.UID = "", ""
	return out
}
