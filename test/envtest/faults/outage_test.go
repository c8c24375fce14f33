// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
)

// many is how many services b alone exports: as many as make a burst of writes visible. The
// simulator has more.
const many = 20

var _ = Describe("FAULT 2 and 3: an API server that is down, with many services", Ordered, func() {
	const ns, kept = "outage", "outage-kept"
	var (
		first, second *listener
		dead          int32
		whole         []string // what a has of b and of itself while all is well
		began         time.Time
		leader        int // the process of b's agent before
	)
	BeforeAll(func(ctx SpecContext) {
		setUp(ctx, ns)
		first, second = listen(), listen()
		gone := listen()
		dead = gone.port
		gone.close()
		for _, m := range both() {
			namespace := clusterset.Namespace(kept)
			namespace.Annotations = map[string]string{model.AnnotationOnLost: string(model.OnLostKeep)}
			m.Create(ctx, namespace)
		}
		exportMany(ctx, b, ns, "many", many, dead, hostAddress)
		for name, port := range map[string]int32{"answers-again": first.port, "comes-back": second.port} {
			exportOne(ctx, a, ns, name, port, "10.99.0.1")
			exportOne(ctx, b, ns, name, port, hostAddress)
		}
		exportOne(ctx, a, kept, "kept", dead, "10.99.0.1")
		exportOne(ctx, b, kept, "kept", dead, hostAddress)
		for _, name := range []string{"answers-again", "comes-back"} {
			Eventually(ctx, a.Backends(ns, name)).Should(Equal([]string{"a/10.99.0.1", "b/" + hostAddress}))
		}
		Eventually(ctx, a.Backends(kept, "kept")).Should(Equal([]string{"a/10.99.0.1", "b/" + hostAddress}))
		Eventually(ctx, func() int { return len(a.AllBackends(ctx, ns)) }).WithTimeout(2 * time.Minute).Should(Equal(many + 4))
		clusterset.AwaitQuiet(ctx, a, b)
		for _, l := range []*listener{first, second} {
			Eventually(ctx, l.probes.Load).WithTimeout(time.Minute).Should(BeNumerically(">", 0), "it answers while b is connected")
		}
		whole, began, leader = a.AllBackends(ctx, ns), time.Now(), b.Agent.PID()
		By("freezing the API server of b")
		Expect(b.Pause(controlplane.APIServer)).To(Succeed())
		DeferCleanup(func() { Expect(b.Resume(controlplane.APIServer)).To(Succeed()) })
	}, NodeTimeout(5*time.Minute))

	It("says that b is lost, and changes no endpoint as long as some of them answer", func(ctx SpecContext) {
		for _, name := range []string{"many-0", "many-19", "answers-again"} {
			Eventually(ctx, a.ImportCondition(ns, name, "Available")).Should(HavePrefix("False/Lost: "))
		}
		Consistently(ctx, func() []string { return a.AllBackends(ctx, ns) }, 2*time.Second, time.Second).Should(Equal(whole))
	}, SpecTimeout(2*time.Minute))

	It("makes its endpoints the last resort when none answers, but not the last ones, nor what is to be kept", func(ctx SpecContext) {
		first.close()
		second.close()
		for _, name := range []string{"answers-again", "comes-back"} {
			Eventually(ctx, a.Backends(ns, name)).Should(Equal([]string{"a/10.99.0.1", "b/" + hostAddress + "!"}))
			Eventually(ctx, a.ImportCondition(ns, name, "Available")).Should(HavePrefix("False/Withdrawn: "))
		}
		Eventually(ctx, a.ImportCondition(kept, "kept", "Available")).Should(HavePrefix("False/Lost: "))
		Expect(a.Backends(kept, "kept")(Default, ctx)).To(Equal([]string{"a/10.99.0.1", "b/" + hostAddress}))
		Eventually(ctx, a.ImportCondition(ns, "many-19", "Available")).Should(HavePrefix("False/Lost: "))
		Expect(unready(a.AllBackends(ctx, ns))).To(HaveLen(2), "of %d services b alone has endpoints", many)
	}, SpecTimeout(3*time.Minute))

	It("brings them back once one answers, although b is still lost", func(ctx SpecContext) {
		first.open()
		Eventually(ctx, func() []string { return a.AllBackends(ctx, ns) }).Should(Equal(whole))
		Eventually(ctx, a.ImportCondition(ns, "comes-back", "Available")).Should(HavePrefix("False/Lost: "))
		first.close()
		Eventually(ctx, func() []string { return unready(a.AllBackends(ctx, ns)) }).Should(HaveLen(2))
	}, SpecTimeout(2*time.Minute))

	It("changes nothing when it is restarted meanwhile, and then brings back each import of which endpoints answer", func(ctx SpecContext) {
		before := a.AllBackends(ctx, ns)
		a.KillAgent(ctx)
		a.AwaitLeader(ctx)
		Consistently(ctx, func() []string { return a.AllBackends(ctx, ns) }, 5*time.Second, time.Second).Should(Equal(before))
		first.open()
		Eventually(ctx, a.Backends(ns, "answers-again")).Should(Equal([]string{"a/10.99.0.1", "b/" + hostAddress}))
		Expect(a.Backends(ns, "comes-back")(Default, ctx)).To(ContainElement("b/" + hostAddress + "!"))
	}, SpecTimeout(2*time.Minute))

	It("recovers with the peer: all as before, nothing was deleted anywhere, and the peer makes no burst of writes", func(ctx SpecContext) {
		By("waiting until the agent of b has lost its leadership and ended")
		Eventually(ctx, b.Agent.PID).ShouldNot(Equal(leader))
		Expect(b.Resume(controlplane.APIServer)).To(Succeed())
		Eventually(ctx, func() []string { return a.AllBackends(ctx, ns) }).Should(Equal(whole))
		for _, name := range []string{"many-0", "many-19", "comes-back"} {
			Eventually(ctx, a.ImportCondition(ns, name, "Available")).Should(HavePrefix("True/Connected: "))
		}
		b.AwaitReady(ctx)
		clusterset.AwaitQuiet(ctx, a, b)
		for _, m := range both() {
			m.HoldInvariants(began, nil, ns, kept)
			Expect(m.AllBackends(ctx, ns)).To(Equal(whole))
		}
		change(ctx, b, ns, "many-7", hostAddress, "10.99.7.7")
		Eventually(ctx, a.Backends(ns, "many-7")).Should(Equal([]string{"b/10.99.7.7", "b/" + hostAddress}))
		wrote := specs(b.AgentWrites(began)) // what was changed, and conditions
		Expect(wrote).NotTo(BeEmpty())
		Expect(len(wrote)).To(BeNumerically("<=", 4), "%v", clusterset.Describe(wrote))
	}, SpecTimeout(3*time.Minute))

	It("FAULT 37: 60 exports that one tenant makes, and then withdraws at once, delay no un-export of another", func(ctx SpecContext) {
		exportMany(ctx, b, ns, "more", 60-many-2, dead, hostAddress)
		Eventually(ctx, func() int { return len(a.AllBackends(ctx, ns)) }).Should(BeNumerically(">", 60), "b's and a's")
		Expect(b.Client.DeleteAllOf(ctx, &mcsv1beta1.ServiceExport{}, client.InNamespace(ns))).To(Succeed())
		withdraw(ctx, kept, "kept")
		Eventually(ctx, a.Backends(kept, "kept")).WithTimeout(20 * time.Second).Should(Equal([]string{"a/10.99.0.1"}))
		Eventually(ctx, func() []string { return a.AllBackends(ctx, ns) }).Should(Equal([]string{"a/10.99.0.1", "a/10.99.0.1"}))
	}, SpecTimeout(2*time.Minute))
})

func unready(backends []string) []string {
	return slices.DeleteFunc(slices.Clone(backends), func(b string) bool { return b[len(b)-1] != '!' })
}

// exportMany exports services, called name-0, name-1 and so on, of which m alone has an
// endpoint.
func exportMany(ctx context.Context, m *clusterset.Member, ns, name string, count int, port int32, address string) {
	GinkgoHelper()
	var made errgroup.Group
	made.SetLimit(8)
	for i := range count {
		made.Go(func() error {
			defer GinkgoRecover()
			exportOne(ctx, m, ns, fmt.Sprintf("%s-%d", name, i), port, address)
			return nil
		})
	}
	Expect(made.Wait()).To(Succeed())
}
