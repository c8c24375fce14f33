// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
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
})
