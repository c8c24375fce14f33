// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
)

var _ = Describe("a service of 600 endpoints", func() {
	const sources, each = 2, 300
	It("arrives in slices of at most 100, of which two at most are written when one endpoint changes", func(ctx SpecContext) {
		ns := namespace(ctx, "many")
		b.Create(ctx, clusterset.Service(ns, "web"))
		for i := range sources {
			var addresses []string
			for n := range each {
				addresses = append(addresses, fmt.Sprintf("10.%d.%d.%d", 60+i, n/250, n%250+1))
			}
			b.Create(ctx, clusterset.Endpoints(ns, "web", fmt.Sprintf("web-%d", i), 8080, addresses...))
		}
		b.Create(ctx, clusterset.Export(ns, "web"))
		for _, m := range all() {
			Eventually(ctx, m.Backends(ns, "web")).Should(HaveLen(sources*each), "in %s", m.ID())
			most := 100
			if m == b { // which imports its own slices as they are
				most = each
			}
			Expect(m.Slices(ctx, ns, "web")).To(HaveEach(HaveField("Endpoints", WithTransform(func(e []discoveryv1.Endpoint) int { return len(e) }, BeNumerically("<=", most)))), "in %s", m.ID())
			Eventually(ctx, m.ImportCondition(ns, "web", "Ready")).Should(HavePrefix("True/"))
		}
		clusterset.AwaitQuiet(ctx, all()...)

		By("changing one endpoint")
		from := time.Now()
		clusterset.Change(ctx, b, clusterset.Endpoints(ns, "web", "web-1", 0), func(s *discoveryv1.EndpointSlice) { s.Endpoints[150].Addresses = []string{"10.70.0.1"} })
		for _, m := range all() {
			Eventually(ctx, m.Backends(ns, "web")).Should(And(HaveLen(sources*each), ContainElement("b/10.70.0.1")))
		}
		clusterset.AwaitQuiet(ctx, all()...)
		for _, m := range all() {
			objects := sets.New[string]()
			for _, write := range written(m, from, ns) {
				Expect(write).To(MatchRegexp("^(patch|update) discovery.k8s.io/endpointslices "+ns+"/derived-"), "in %s", m.ID())
				objects.Insert(strings.Fields(write)[2])
			}
			Expect(objects).To(Or(HaveLen(1), HaveLen(2)), "in %s", m.ID())
		}
		Expect(written(b, from, model.ExchangeNamespace("b"))).To(Or(HaveLen(1), HaveLen(2)), "the copy that had the endpoint, and the one that has it")
	}, SpecTimeout(3*time.Minute))
})

// written are the writes of agents to one namespace.
func written(m *clusterset.Member, since time.Time, ns string) []string {
	GinkgoHelper()
	var out []controlplane.Write
	for _, w := range m.AgentWrites(since) {
		if w.Namespace == ns {
			out = append(out, w)
		}
	}
	return clusterset.Describe(out)
}
