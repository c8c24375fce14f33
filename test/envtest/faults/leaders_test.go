// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
)

var _ = Describe("FAULT 10: two leaders", func() {
	It("one that was frozen does no harm with what it still has to say", func(ctx SpecContext) {
		const ns = "leaders"
		setUp(ctx, ns)
		for _, name := range []string{"stays", "goes"} {
			exportOne(ctx, b, ns, name, 8080, "10.95.0.1")
			Eventually(ctx, a.Backends(ns, name)).Should(Equal([]string{"b/10.95.0.1"}))
		}
		second := a.Replica(ctx)
		uid := a.Derived(ctx, ns, "stays").UID

		By("freezing the leader in the midst of a change")
		old := a.Agent.PID()
		change(ctx, b, ns, "stays", "10.95.0.2")
		Expect(syscall.Kill(old, syscall.SIGSTOP)).To(Succeed())
		DeferCleanup(func() { _ = syscall.Kill(old, syscall.SIGCONT) })
		change(ctx, b, ns, "stays", "10.95.0.3")
		withdraw(ctx, ns, "goes")
		exportOne(ctx, b, ns, "comes", 8080, "10.95.0.4")
		By("letting another one lead")
		Eventually(ctx, a.Backends(ns, "stays")).WithTimeout(2 * time.Minute).Should(Equal([]string{"b/10.95.0.3"}))
		Eventually(ctx, a.Backends(ns, "goes")).Should(BeEmpty())
		Eventually(ctx, a.Backends(ns, "comes")).Should(Equal([]string{"b/10.95.0.4"}))
		clusterset.AwaitQuiet(ctx, a)
		truth := a.AllBackends(ctx, ns)

		By("letting the old one go on")
		from := time.Now()
		Expect(syscall.Kill(old, syscall.SIGCONT)).To(Succeed())
		Eventually(ctx, a.Agent.PID).ShouldNot(Equal(old), "it ends, and is started again")
		a.AwaitReady(ctx)
		clusterset.AwaitQuiet(ctx, a)
		Expect(a.AllBackends(ctx, ns)).To(Equal(truth))
		Expect(a.Derived(ctx, ns, "stays").UID).To(Equal(uid))
		a.HoldInvariants(from, nil, ns)
		var late []controlplane.Write
		for _, w := range specs(a.AgentWrites(from)) {
			if w.Namespace == ns {
				late = append(late, w)
			}
		}
		Expect(late).To(BeEmpty(), "%v", clusterset.Describe(late))
		Expect(second.Kill()).To(Succeed())
	}, SpecTimeout(3*time.Minute))
})
