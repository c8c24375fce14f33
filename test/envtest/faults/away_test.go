// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/comity-mcs/comity/sync/members"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
)

var _ = Describe("FAULT 2: the API server of a peer that was stopped for a while", func() {
	const ns = "away"
	It("is read again, records included: what is exported later is imported, and what is withdrawn goes", func(ctx SpecContext) {
		healthy(ctx)
		for _, m := range []*clusterset.Member{a, b} {
			m.Create(ctx, clusterset.Namespace(ns))
		}
		DeferCleanup(func(ctx SpecContext) { withdrawAll(ctx, ns) }, NodeTimeout(2*time.Minute))
		exportOne(ctx, b, ns, "old", 8080, "10.92.0.1")
		Eventually(ctx, a.Backends(ns, "old")).Should(Equal([]string{"b/10.92.0.1"}))

		Expect(b.Kill(controlplane.APIServer)).To(Succeed())
		awaitEvent(ctx, members.ReasonUnreachable)
		Expect(b.Start(ctx, controlplane.APIServer)).To(Succeed())
		b.AwaitReady(ctx)
		exportOne(ctx, b, ns, "new", 8080, "10.92.0.2")
		Eventually(ctx, a.Backends(ns, "new")).Should(Equal([]string{"b/10.92.0.2"}))
		withdraw(ctx, ns, "old")
		Eventually(ctx, func() []string { return a.AllBackends(ctx, ns) }).Should(Equal([]string{"b/10.92.0.2"}))
	}, SpecTimeout(4*time.Minute))
})
