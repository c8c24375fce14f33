// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package clusterset

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/install"
)

// quiet is how long nothing must happen before a state counts as converged:
// longer than the pause between two writes of one status, half a second, and the second
// for which findings are collected.
const quiet = 2 * time.Second

// HoldInvariants fails unless, of the invariants, the three hold that the audit
// log shows of m: I1, an agent touches nothing that by its name and kind cannot
// be Comity's; I2, nothing is deleted in these namespaces and in those of
// Comity, unless deletes says so; I4, nobody from another cluster writes. What
// earlier specs exported is in other namespaces, and may go at any time.
func (m *Member) HoldInvariants(since time.Time, deletes func(controlplane.Write) bool, namespaces ...string) {
	ginkgo.GinkgoHelper()
	own := "system:serviceaccount:" + install.Namespace + ":" + install.Account
	for _, w := range m.AgentWrites(since) {
		told := Describe([]controlplane.Write{w})[0]
		if w.Code < 300 {
			gomega.Expect(w.User).To(gomega.Equal(own), "I4, in %s: %s", m.ID(), told)
		}
		gomega.Expect(m.mayWrite(w)).To(gomega.BeTrue(), "I1, in %s: %s", m.ID(), told)
		within := slices.Contains(namespaces, w.Namespace) || strings.HasPrefix(w.Namespace, "comity-")
		if within && strings.HasPrefix(w.Verb, "delete") && w.Code < 300 && (deletes == nil || !deletes(w)) {
			ginkgo.Fail("I2, in " + m.ID() + ": " + told)
		}
	}
}

// mayWrite says whether Comity has anything to write under that kind and name.
func (m *Member) mayWrite(w controlplane.Write) bool {
	own := model.ExchangeNamespace(model.ClusterID(m.ID()))
	switch {
	case w.Namespace == own || strings.HasPrefix(w.Namespace, own+"-to-"):
		return true
	case w.Namespace == install.Namespace:
		return w.Resource == "secrets" && strings.HasPrefix(w.Name, "peer-") || w.Resource == "serviceaccounts/token"
	}
	switch w.Resource {
	case "multicluster.x-k8s.io/serviceexports/status", "multicluster.x-k8s.io/serviceimports", "multicluster.x-k8s.io/serviceimports/status",
		"policy.comity.dev/exportpolicies/status", "exchange.comity.dev/peers/status":
		return true
	case "services", "discovery.k8s.io/endpointslices":
		return strings.HasPrefix(w.Name, "derived-")
	}
	return false
}

// AwaitQuiet waits until no agent of these members has written for a while: I3.
func AwaitQuiet(ctx context.Context, of ...*Member) {
	ginkgo.GinkgoHelper()
	gomega.Eventually(ctx, func(g gomega.Gomega) {
		from := time.Now()
		g.Consistently(func() []string {
			var out []string
			for _, m := range of {
				out = append(out, Describe(m.AgentWrites(from))...)
			}
			return out
		}, quiet, quiet/5).Should(gomega.BeEmpty(), "I3: a converged state causes no write")
	}).WithTimeout(ready).Should(gomega.Succeed())
}
