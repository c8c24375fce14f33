// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package older

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
	"github.com/comity-mcs/comity/test/envtest/suite"
)

const ns = "shop"

func TestOlder(t *testing.T) {
	EnforceDefaultTimeoutsWhenUsingContexts()
	suite.Run(t, "a member of an earlier version", suite.Waits{Soon: 45 * time.Second, Poll: 100 * time.Millisecond})
}

var (
	set *clusterset.Set
	// now runs this version, before the earlier one.
	now, before *clusterset.Member
)

var _ = BeforeSuite(func(ctx SpecContext) {
	binary := os.Getenv("COMITY_OLDER")
	Expect(binary).NotTo(BeEmpty(), "COMITY_OLDER must be the path of an earlier version's agent; make test-older builds one")
	set = clusterset.New(ctx, "--heartbeat-interval=1s", "--stale-after=5s", "--lost-after=20s")
	set.Earlier(binary, "b")
	set.Add(ctx, controlplane.Options{IDs: []string{"a", "b"}, APIServerOnly: true})
	set.Join(ctx, "a", "b")
	now, before = set.Members["a"], set.Members["b"]
	for _, m := range []*clusterset.Member{now, before} {
		m.Create(ctx, clusterset.Namespace(ns))
	}
}, NodeTimeout(5*time.Minute))

var _ = ReportAfterEach(func(report SpecReport) {
	if report.Failed() {
		set.Report()
	}
})

// address is the endpoint of the n-th Service of m, as others show it.
func address(m *clusterset.Member, n int) string { return fmt.Sprintf("10.91.%d.%d", m.ID()[0], n+1) }

func name(m *clusterset.Member, n int) string { return fmt.Sprintf("%s-%d", m.ID(), n) }

// export makes the n-th Service of m, and exports it.
func export(ctx context.Context, m *clusterset.Member, n int) {
	GinkgoHelper()
	m.Create(ctx, clusterset.Service(ns, name(m, n)), clusterset.Endpoints(ns, name(m, n), name(m, n), 8080, address(m, n)), clusterset.Export(ns, name(m, n)))
}

// shows is the part of what m imports that comes from another member.
func shows(m, from *clusterset.Member) func(ctx context.Context) []string {
	return func(ctx context.Context) []string {
		return slices.DeleteFunc(m.AllBackends(ctx, ns), func(backend string) bool { return !strings.HasPrefix(backend, from.ID()+"/") })
	}
}

// all are the first so many endpoints of a member, as others show them.
func all(from *clusterset.Member, count int) []string {
	var out []string
	for n := range count {
		out = append(out, from.ID()+"/"+address(from, n))
	}
	slices.Sort(out)
	return out
}

// deleteRecords deletes what m publishes of its exports, but not their slices; its agent
// does not run meanwhile. An agent that does not name the slices of an export has no
// way to say that one was lost.
func deleteRecords(ctx context.Context, m *clusterset.Member) {
	GinkgoHelper()
	own := client.InNamespace(model.ExchangeNamespace(model.ClusterID(m.ID())))
	Expect(m.Client.DeleteAllOf(ctx, &exchangev1alpha1.ExportRecord{}, own)).To(Succeed())
}

var _ = Describe("a member of an earlier version,", Ordered, func() {
	const (
		exports = 30
		// budget is how many exports of a member that does not state its withdrawals may
		// disappear within a minute; what disappears beside these is held.
		budget = 10
	)
	// Either direction: the exporter, and who imports.
	directions := func() [][2]*clusterset.Member {
		return [][2]*clusterset.Member{{now, before}, {before, now}}
	}

	It("exports to, and imports from, one of this version", func(ctx SpecContext) {
		for _, d := range directions() {
			for n := range exports {
				export(ctx, d[0], n)
			}
			Eventually(ctx, shows(d[1], d[0])).Should(Equal(all(d[0], exports)), "from %s", d[0].ID())
		}
	}, SpecTimeout(2*time.Minute))

	It("sees what is withdrawn, and has its own withdrawals seen", func(ctx SpecContext) {
		for _, d := range directions() {
			Expect(d[0].Client.Delete(ctx, clusterset.Export(ns, name(d[0], exports-1)))).To(Succeed())
			Eventually(ctx, shows(d[1], d[0])).Should(Equal(all(d[0], exports-1)), "from %s", d[0].ID())
		}
	}, SpecTimeout(2*time.Minute))

	It("has what it exports kept while its records are lost", func(ctx SpecContext) {
		before.Without(ctx, func() {
			deleteRecords(ctx, before)
			Consistently(ctx, func(ctx context.Context) int { return len(shows(now, before)(ctx)) }).WithTimeout(10 * time.Second).
				Should(BeNumerically(">=", exports-1-budget))
		})
		Eventually(ctx, func(g Gomega) {
			var records exchangev1alpha1.ExportRecordList
			g.Expect(before.Client.List(ctx, &records, client.InNamespace(model.ExchangeNamespace("b")))).To(Succeed())
			g.Expect(len(records.Items)).To(BeNumerically(">=", exports-1))
		}).Should(Succeed(), "b publishes it again")
		Eventually(ctx, shows(now, before)).Should(Equal(all(before, exports-1)))
	}, SpecTimeout(3*time.Minute))

	It("is upgraded, loses nothing, and then states its withdrawals", func(ctx SpecContext) {
		// What was found missing before does not count against what is withdrawn now.
		before.Upgrade(ctx)
		for _, d := range directions() {
			Consistently(ctx, shows(d[1], d[0])).WithTimeout(5*time.Second).Should(Equal(all(d[0], exports-1)), "from %s", d[0].ID())
		}
		Eventually(ctx, func(g Gomega) {
			record := &exchangev1alpha1.MemberRecord{}
			g.Expect(before.Client.Get(ctx, client.ObjectKey{Namespace: model.ExchangeNamespace("b"), Name: "b"}, record)).To(Succeed())
			g.Expect(record.Spec.Features).To(ContainElement(exchangev1alpha1.FeatureWithdrawals))
		}).Should(Succeed())
		for n := range exports - 1 {
			Expect(before.Client.Delete(ctx, clusterset.Export(ns, name(before, n)))).To(Succeed())
		}
		Eventually(ctx, shows(now, before)).Should(BeEmpty(), "all at once: nothing is held, since each is stated")
	}, SpecTimeout(3*time.Minute))
})
