// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/test/install"
)

// steps collects what a join did.
func steps(into *[]join.Step) join.Options {
	return join.Options{Progress: func(s join.Step) {
		GinkgoWriter.Println(s)
		*into = append(*into, s)
	}}
}

func changing(all []join.Step) []join.Step {
	var out []join.Step
	for _, s := range all {
		if s.Verb != join.Unchanged {
			out = append(out, s)
		}
	}
	return out
}

var _ = Describe("Joining through a hub", func() {
	It("changes nothing when it is repeated", func(ctx SpecContext) {
		var done []join.Step
		Expect(install.Join(ctx, hub(), sides(ids...), steps(&done))).To(Succeed())
		Expect(done).NotTo(BeEmpty())
		Expect(changing(done)).To(BeEmpty())
	})

	It("gives one credential to a member, and the peers' addresses to accept", func(ctx SpecContext) {
		exchange := members["a"].exchangeSecret(ctx)
		for _, id := range []string{"b", "c"} {
			peer, secret := &exchangev1alpha1.Peer{}, &corev1.Secret{}
			Expect(members["a"].client.Get(ctx, client.ObjectKey{Name: id}, peer)).To(Succeed())
			Expect(peer.Spec.ClusterUID).To(Equal(members[id].uid(ctx)))
			Expect(peer.Spec.AcceptedCIDRs).To(Equal([]string{members[id].Network().PodCIDRs[0].String()}))
			Expect(members["a"].client.Get(ctx, client.ObjectKey{Namespace: install.Namespace, Name: peer.Spec.KubeconfigSecret}, secret)).To(Succeed())
			Expect(secret.Data).To(Equal(exchange.Data))
		}
	})

	It("refuses a second cluster with the id of a member, and writes nothing", func(ctx SpecContext) {
		impostor := side("c")
		impostor.ID = "b"
		var done []join.Step
		Expect(install.Join(ctx, hub(), append(sides("a"), impostor), steps(&done))).To(
			MatchError(ContainSubstring("namespace comity-b is that of another cluster with the id b")))
		Expect(done).To(BeEmpty())
		Expect(install.Join(ctx, hub(), append(sides("a", "b"), impostor), steps(&done))).To(
			MatchError(ContainSubstring(`two clusters have the id "b"`)))
		Expect(done).To(BeEmpty())
	})

	It("refuses a hub that does not know the exchange's kinds", func(ctx SpecContext) {
		elsewhere := hub()
		elsewhere.RESTConfig = emptyServer()
		Expect(install.Join(ctx, elsewhere, sides(ids...), join.Options{})).To(
			MatchError(ContainSubstring("the hub: the API server does not serve ExportRecord, ImportRecord, MemberRecord, NamespaceRecord of exchange.comity.dev/v1alpha1")))
	})

	It("takes a member back out, and nothing from the others", func(ctx SpecContext) {
		d := side("c")
		d.ID = "d"
		Expect(install.Join(ctx, hub(), append(sides("a"), d), join.Options{})).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			By("giving c the credentials of c again, which d had for a moment")
			Expect(install.Join(ctx, hub(), sides(ids...), join.Options{})).To(Succeed())
			members["c"].mount(ctx)
		})
		asD, asA := members["c"].inHub(ctx), members["a"].inHub(ctx)
		Expect(asD.List(ctx, &exchangev1alpha1.ExportRecordList{}, client.InNamespace("comity-a-to-d"))).To(Succeed())

		By("publishing for d, whose namespace came after the agent had started")
		namespace := newNamespace(ctx)
		members["a"].export(ctx, namespace, "d")
		Eventually(func() []string { return published(ctx, namespace) }).Should(Equal([]string{"comity-a-to-d"}))

		Expect(join.Disconnect(ctx, hub(), d, sides("a"), join.Options{})).To(Succeed())

		Eventually(func() error {
			return asD.List(ctx, &exchangev1alpha1.ExportRecordList{}, client.InNamespace("comity-a"))
		}).Should(WithTransform(apierrors.IsUnauthorized, BeTrue()), "the token of a removed account")
		gone := func(c client.Client, namespace, name string, object client.Object) {
			GinkgoHelper()
			Expect(apierrors.IsNotFound(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object))).To(BeTrue(), "%T %s/%s", object, namespace, name)
		}
		gone(theHub.client, "comity-a", "member-d", &rbacv1.RoleBinding{})
		gone(theHub.client, join.DefaultNamespace, "member-d", &rbacv1.Role{})
		gone(members["a"].client, install.Namespace, "peer-d", &corev1.Secret{})
		gone(members["a"].client, "", "d", &exchangev1alpha1.Peer{})
		for _, name := range []string{"comity-d", "comity-d-to-a", "comity-a-to-d"} {
			ns := &corev1.Namespace{}
			Expect(theHub.client.Get(ctx, client.ObjectKey{Name: name}, ns)).To(Succeed())
			Expect(ns.DeletionTimestamp).NotTo(BeNil(), "nobody finishes deletions here, but that of %s was asked for", name)
		}
		Expect(asA.List(ctx, &exchangev1alpha1.ExportRecordList{}, client.InNamespace("comity-b"))).To(Succeed())
	})
})
