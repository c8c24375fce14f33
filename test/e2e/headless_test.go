// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"

	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

const nxdomain = "NXDOMAIN"

// The second example of the documentation: a StatefulSet with a headless Service.
var _ = Describe("stateful-service, headless, exported from a", Ordered, kep("service-types", "dns"), func() {
	stateful := types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "stateful-service"}
	var ips map[string][]string

	BeforeAll(func(ctx SpecContext) {
		clusterA.applyFile(ctx, "stateful.yaml")
		Expect(clusterA.awaitPods(ctx, stateful.Namespace, "stateful", 2)).To(ConsistOf("stateful-0", "stateful-1"))
		ips = clusterA.podIPs(ctx, stateful.Namespace, "stateful")
		clusterA.expectExported(ctx, stateful, metav1.ConditionFalse)
		for _, m := range bothMembers() {
			m.expectImported(ctx, stateful, mcsv1beta1.Headless, "a")
		}
	})

	It("resolves to its Pods, together, one by one, and with ports", func(ctx SpecContext) {
		for _, m := range bothMembers() {
			m.expectAddresses(ctx, hostOf(stateful), slices.Concat(ips["stateful-0"], ips["stateful-1"])...)
			m.expectAddresses(ctx, "stateful-0.a."+hostOf(stateful), ips["stateful-0"]...)
			m.expectAddresses(ctx, "stateful-1.a."+hostOf(stateful), ips["stateful-1"]...)
			m.expectDNS(ctx, "_http._tcp."+hostOf(stateful), dns.TypeSRV,
				"80 stateful-0.a."+hostOf(stateful)+".", "80 stateful-1.a."+hostOf(stateful)+".")
			m.expectNoName(ctx, "stateful-2.a."+hostOf(stateful))
			m.expectNoName(ctx, "stateful-0.b."+hostOf(stateful))
		}
	})

	It("leads to its Pods by those names", func(ctx SpecContext) {
		for _, m := range bothMembers() {
			m.expectAnswers(ctx, "stateful-0.a."+hostOf(stateful), servicePort, "stateful-0")
			m.expectAnswers(ctx, "stateful-1.a."+hostOf(stateful), servicePort, "stateful-1")
		}
		Eventually(ctx, func() ([]string, error) { return clusterB.ask(ctx, hostOf(stateful), servicePort, 1) }).
			Should(Or(ConsistOf("stateful-0"), ConsistOf("stateful-1")))
	})

	It("is gone everywhere once it is no longer exported", func(ctx SpecContext) {
		Expect(clusterA.client.Delete(ctx, newExport(stateful.Namespace, stateful.Name))).To(Succeed())
		for _, m := range bothMembers() {
			m.expectNoTrace(ctx, stateful)
			m.expectNoName(ctx, "stateful-0.a."+hostOf(stateful))
		}
	})
})
