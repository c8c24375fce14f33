// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"net/netip"

	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/test/envtest/clusterset"
)

const (
	ipv4 = corev1.IPv4Protocol
	ipv6 = corev1.IPv6Protocol
)

// endpoints6 is a slice of IPv6 addresses made by hand.
func endpoints6(ns, service, name string, addresses ...string) *discoveryv1.EndpointSlice {
	s := clusterset.Endpoints(ns, service, name, 8080, addresses...)
	s.AddressType = discoveryv1.AddressTypeIPv6
	return s
}

func isIPv6(text string) bool { return netip.MustParseAddr(text).Is6() }

var _ = Describe("IP families", func() {
	It("are imported in the order of the export, with addresses and DNS of both", func(ctx SpecContext) {
		ns := namespace(ctx, "dual")
		b.Create(ctx, selecting(ns, "web", ipv6, ipv4), pod(ns, "web", "web-1"), clusterset.Export(ns, "web"))
		ips := addresses(ctx, b, ns, "web", 1)
		Expect(ips).To(HaveLen(2), "kwok gives a Pod an address of each family")
		for _, m := range all() {
			Eventually(ctx, m.ImportCondition(ns, "web", "Ready")).Should(HavePrefix("True/"), "in %s", m.ID())
			Eventually(ctx, m.Backends(ns, "web")).Should(ConsistOf("b/"+ips[0], "b/"+ips[1]))
			types := map[discoveryv1.AddressType]int{}
			for _, s := range m.Slices(ctx, ns, "web") {
				types[s.AddressType]++
			}
			Expect(types).To(Equal(map[discoveryv1.AddressType]int{discoveryv1.AddressTypeIPv4: 1, discoveryv1.AddressTypeIPv6: 1}))
		}
		imported := clusterset.Get(ctx, b, clusterset.Import(ns, "web"))
		Expect(imported.Spec.IPFamilies).To(Equal([]corev1.IPFamily{ipv6, ipv4}))
		Expect(imported.Spec.IPs).To(HaveExactElements(Satisfy(isIPv6), Not(Satisfy(isIPv6))))
		Expect(b.Derived(ctx, ns, "web").Spec.ClusterIPs).To(Equal(imported.Spec.IPs))
		Eventually(ctx, lookup(b, hostOf(ns, "web"), dns.TypeAAAA)).Should(Equal(imported.Spec.IPs[:1]))
		Eventually(ctx, lookup(b, hostOf(ns, "web"), dns.TypeA)).Should(Equal(imported.Spec.IPs[1:]))
		By("leaving out, in a cluster without IPv6, what it cannot have")
		imported = clusterset.Get(ctx, a, clusterset.Import(ns, "web"))
		Expect(imported.Spec.IPFamilies).To(Equal([]corev1.IPFamily{ipv4}))
		Expect(imported.Spec.IPs).To(HaveExactElements(Not(Satisfy(isIPv6))))
		Eventually(ctx, lookup(a, hostOf(ns, "web"), dns.TypeA)).Should(Equal(imported.Spec.IPs))
		Eventually(ctx, lookup(a, hostOf(ns, "web"), dns.TypeAAAA)).Should(BeEmpty())
	})

	It("in conflict are told by every constituent, and the oldest decides", func(ctx SpecContext) {
		ns := namespace(ctx, "conflict")
		b.Create(ctx, selecting(ns, "web", ipv4, ipv6), clusterset.Export(ns, "web"))
		Eventually(ctx, a.ImportCondition(ns, "web", "Ready")).Should(HavePrefix("True/"))
		b1 := clusterset.Get(ctx, b, clusterset.Export(ns, "web"))
		Eventually(ctx, func() bool { // times have seconds
			late := clusterset.Export(ns, "later")
			a.Create(ctx, late)
			made := late.CreationTimestamp
			Expect(a.Client.Delete(ctx, late)).To(Succeed())
			return made.After(b1.CreationTimestamp.Time)
		}).Should(BeTrue())
		a.Create(ctx, selecting(ns, "web", ipv4), clusterset.Export(ns, "web"))
		for _, m := range all() {
			Eventually(ctx, m.ExportCondition(ns, "web", "Conflict")).Should(And(HavePrefix("True/IPFamilyConflict: "), ContainSubstring("IPv6")), "in %s", m.ID())
		}
		Expect(clusterset.Get(ctx, b, clusterset.Import(ns, "web")).Spec.IPFamilies).To(Equal([]corev1.IPFamily{ipv4, ipv6}))
		By("ending once they agree")
		clusterset.Change(ctx, b, clusterset.Service(ns, "web"), func(s *corev1.Service) {
			s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
		})
		for _, m := range all() {
			Eventually(ctx, m.ExportCondition(ns, "web", "Conflict")).Should(HavePrefix("False/"), "in %s", m.ID())
		}
	})

	It("that an importer does not have keep it from importing, which both sides are told", func(ctx SpecContext) {
		ns := namespace(ctx, "ipv6")
		b.Create(ctx, selecting(ns, "web", ipv6), pod(ns, "web", "web-1"), clusterset.Export(ns, "web"))
		ips := addresses(ctx, b, ns, "web", 1)
		six := ips[len(ips)-1]
		Expect(isIPv6(six)).To(BeTrue())
		Eventually(ctx, b.Backends(ns, "web")).Should(Equal([]string{"b/" + six}))
		Eventually(ctx, b.ImportCondition(ns, "web", "Ready")).Should(HavePrefix("True/"))
		imported := clusterset.Get(ctx, b, clusterset.Import(ns, "web"))
		Expect(imported.Spec.IPFamilies).To(Equal([]corev1.IPFamily{ipv6}))
		Eventually(ctx, lookup(b, hostOf(ns, "web"), dns.TypeAAAA)).Should(Equal(imported.Spec.IPs))
		Eventually(ctx, lookup(b, hostOf(ns, "web"), dns.TypeA)).Should(BeEmpty())

		Eventually(ctx, a.ImportCondition(ns, "web", "Ready")).Should(HavePrefix("False/IPFamilyNotSupported: "))
		Expect(clusterset.Get(ctx, a, clusterset.Import(ns, "web")).Spec.IPs).To(BeEmpty())
		Expect(a.Backends(ns, "web")(Default, ctx)).To(BeEmpty())
		Eventually(ctx, b.ExportCondition(ns, "web", "Available")).Should(
			And(HavePrefix("False/IPFamilyNotSupported: imported by 0 of 1 clusters"), ContainSubstring(" a ")))
	})
})
