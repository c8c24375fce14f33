// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/members"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
)

var _ = Describe("FAULT 27: a slip in what makes a cluster a member", Ordered, func() {
	const ns = "slip"
	var (
		whole []string
		right exchangev1alpha1.PeerSpec
		next  int
	)
	all := func(ctx context.Context) []string { return a.AllBackends(ctx, ns) }
	// continues exports one more, which is imported as soon as everything is right.
	continues := func(ctx context.Context) {
		GinkgoHelper()
		exportOne(ctx, b, ns, fmt.Sprintf("web-%d", next), 8080, fmt.Sprintf("10.98.7.%d", next+1))
		next++
		Eventually(ctx, all).Should(HaveLen(next))
		whole = all(ctx)
	}
	BeforeAll(func(ctx SpecContext) {
		setUp(ctx, ns)
		for _, m := range both() {
			keepIfLost(ctx, m, ns)
		}
		afterFailure(func(ctx context.Context) {
			a.Restart(ctx)
			a.ChangePeer(ctx, "b", func(s *exchangev1alpha1.PeerSpec) { *s = right })
		})
		right = clusterset.Get(ctx, a, clusterset.Peer("b")).Spec
		continues(ctx)
		continues(ctx)
	}, NodeTimeout(2*time.Minute))

	It("in the Peer removes nothing, is named, and once corrected everything continues", func(ctx SpecContext) {
		a.ChangePeer(ctx, "b", func(s *exchangev1alpha1.PeerSpec) { s.ClusterUID = "33333333-3333-4333-8333-333333333333" })
		Eventually(ctx, a.PeerCondition("b", exchangev1alpha1.PeerAccepted)).Should(HavePrefix("False/" + remote.ReasonClusterIDReused + ": "))
		kept(ctx, a, ns, whole, "the UID is that of another cluster")
		a.KillAgent(ctx)
		a.AwaitLeader(ctx)
		kept(ctx, a, ns, whole, "after a restart")
		a.ChangePeer(ctx, "b", func(s *exchangev1alpha1.PeerSpec) { *s = right })
		continues(ctx)
	}, SpecTimeout(2*time.Minute))

	It("in our own id, which is that of the peer, or in our own clusterset removes nothing in both", func(ctx SpecContext) {
		// Both export this one, and a exports another to b alone.
		exportOne(ctx, a, ns, "web-0", 8080, "10.97.7.1")
		scoped := clusterset.Export(ns, "scoped")
		scoped.Annotations = map[string]string{model.AnnotationExportTo: "b"}
		a.Create(ctx, clusterset.Service(ns, "scoped"), clusterset.Endpoints(ns, "scoped", "scoped-x", 8080, "10.97.7.2"), scoped)
		Eventually(ctx, all).Should(HaveLen(next + 2))
		without := whole
		whole = all(ctx)
		Eventually(ctx, func() []string { return b.AllBackends(ctx, ns) }).Should(Equal(whole))
		a.Restart(ctx, "--cluster-id=b")
		Eventually(ctx, a.PeerCondition("b", exchangev1alpha1.PeerAccepted)).Should(HavePrefix("False/" + members.ReasonOwnClusterID))
		kept(ctx, a, ns, whole, "a has the id of b")
		kept(ctx, b, ns, whole, "a has the id of b")
		a.Restart(ctx, "--clusterset=misspelled")
		Eventually(ctx, a.PeerCondition("b", exchangev1alpha1.PeerAccepted)).Should(HavePrefix("False/" + members.ReasonWrongClusterSet))
		kept(ctx, a, ns, whole, "a names another clusterset")
		kept(ctx, b, ns, whole, "a names another clusterset")
		a.Restart(ctx)
		kept(ctx, a, ns, whole, "a has its own id and clusterset again")
		kept(ctx, b, ns, whole, "a has its own id and clusterset again")
		for _, name := range []string{"web-0", "scoped"} {
			Expect(a.Client.Delete(ctx, clusterset.Export(ns, name))).To(Succeed())
		}
		Eventually(ctx, all).Should(Equal(without))
		continues(ctx)
	}, SpecTimeout(3*time.Minute))
})
