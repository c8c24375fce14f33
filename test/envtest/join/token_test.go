// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
	"github.com/comity-mcs/comity/test/install"
)

// What the policy comity-tokens (config/admission) compares a renewal with.
var _ = Describe("the account of a peer", Ordered, func() {
	account := func(ctx SpecContext) *corev1.ServiceAccount {
		GinkgoHelper()
		found := &corev1.ServiceAccount{}
		Expect(admin("a").Get(ctx, client.ObjectKey{Namespace: join.DefaultNamespace, Name: model.PeerName("b")}, found)).To(Succeed())
		return found
	}
	recorded := func(ctx SpecContext, expiry string) {
		GinkgoHelper()
		claims, is := kubeconfig.ReadToken(credential(ctx, "b", "a").BearerToken)
		Expect(is).To(BeTrue())
		Expect(claims.Audience).To(HaveLen(1))
		Expect(account(ctx).Annotations).To(And(
			HaveKeyWithValue(model.AnnotationTokenExpiry, expiry), HaveKeyWithValue(model.AnnotationTokenAudiences, claims.Audience[0])))
	}

	It("says for how long and for whom its token is", func(ctx SpecContext) {
		Expect(install.Join(ctx, nil, []join.Cluster{cluster("a"), cluster("b")}, join.Options{Expiry: 3 * time.Hour})).To(Succeed())
		Expect(install.Join(ctx, nil, []join.Cluster{cluster("a"), cluster("b")}, join.Options{Expiry: 2 * time.Hour, Rotate: true})).To(Succeed())
		recorded(ctx, "2h0m0s")
	})

	It("says so after a join, too, if an earlier version made it", func(ctx SpecContext) {
		old := account(ctx)
		delete(old.Annotations, model.AnnotationTokenExpiry)
		delete(old.Annotations, model.AnnotationTokenAudiences)
		Expect(admin("a").Update(ctx, old)).To(Succeed())
		before := credential(ctx, "b", "a").BearerToken
		Expect(install.Join(ctx, nil, []join.Cluster{cluster("a"), cluster("b")}, join.Options{})).To(Succeed())
		Expect(credential(ctx, "b", "a").BearerToken).To(Equal(before), "the token is good for long enough")
		recorded(ctx, "2h0m0s")
	})
})
