// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/install"
)

// stated is what the agent of m states of itself on the leader Lease.
func (m *member) stated(g Gomega, ctx context.Context) model.AgentInfo { //nolint:revive // Eventually passes itself first
	l := &coordinationv1.Lease{}
	g.Expect(m.client.Get(ctx, types.NamespacedName{Namespace: install.Namespace, Name: lease}, l)).To(Succeed())
	info, err := model.ParseAgentInfo(l.Annotations)
	g.Expect(err).NotTo(HaveOccurred())
	return info
}

var _ = Describe("The leader", func() {
	want := model.AgentInfo{ID: "a", Set: clusterset, Version: "dev", Mode: model.ExchangeMesh, ServiceAccount: install.Account}

	It("states on its Lease who it is, keeps leading, and writes it once", func(ctx SpecContext) {
		a := members["a"]
		Eventually(a.stated).WithContext(ctx).Should(Equal(want))
		leads := a.holder(ctx)
		from := time.Now()
		// Longer than the pause between two reads of the Lease.
		Consistently(func() string { return a.holder(ctx) }, 2500*time.Millisecond).Should(Equal(leads))
		_, election := a.agentWrites(from)
		for _, w := range election {
			Expect(w.Name == lease && w.Verb == "patch").To(BeFalse(), "no patch without a change")
		}
	})

	It("states it again on a Lease that was deleted", func(ctx SpecContext) {
		a := members["a"]
		a.expireLease(ctx)
		Eventually(a.stated).WithContext(ctx).Should(Equal(want))
		Expect(a.holder(ctx)).NotTo(BeEmpty())
	})
})
