// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

type families = []corev1.IPFamily

var _ = Describe("the IP families of an import", func() {
	// check compares what the Service has with what the ServiceImport says.
	check := func(c *cluster, want families) {
		GinkgoHelper()
		s, imp := c.service(), c.serviceImport()
		Expect(s.Spec.IPFamilies).To(Equal(want))
		Expect(imp.Spec.IPFamilies).To(Equal(want))
		if imp.Spec.Type == mcsv1beta1.ClusterSetIP {
			Expect(imp.Spec.IPs).To(And(HaveLen(len(want)), Equal(s.Spec.ClusterIPs)))
		}
	}
	DescribeTable("on a new Service are those that this cluster has, in the import's order",
		func(wanted, home, want families) {
			for _, t := range []mcsv1beta1.ServiceImportType{mcsv1beta1.ClusterSetIP, mcsv1beta1.Headless} {
				c := importing()
				c.Desired.Type, c.Desired.IPFamilies, c.LocalCluster.Families = t, wanted, home
				Expect(c.bring().Problems).To(BeEmpty())
				check(c, want)
			}
		},
		Entry("both", families{"IPv4", "IPv6"}, families{"IPv4", "IPv6"}, families{"IPv4", "IPv6"}),
		Entry("both, the other way round", families{"IPv6", "IPv4"}, families{"IPv4", "IPv6"}, families{"IPv6", "IPv4"}),
		Entry("IPv6 alone", families{"IPv6"}, families{"IPv4", "IPv6"}, families{"IPv6"}),
		Entry("of two, the one that is here", families{"IPv6", "IPv4"}, families{"IPv4"}, families{"IPv4"}),
	)
	DescribeTable("of an existing Service change, and the first clusterset IP stays if it may",
		func(first, then, want families, stays bool) {
			c := importing()
			c.Desired.IPFamilies = first
			c.bring()
			before := c.service()
			c.Desired.IPFamilies = then
			c.bring()
			check(c, want)
			Expect(c.service().UID == before.UID).To(Equal(stays))
			if stays {
				Expect(c.service().Spec.ClusterIP).To(Equal(before.Spec.ClusterIP))
			}
		},
		Entry("one is added behind", families{"IPv4"}, families{"IPv4", "IPv6"}, families{"IPv4", "IPv6"}, true),
		Entry("one is added before: it stands behind", families{"IPv4"}, families{"IPv6", "IPv4"}, families{"IPv4", "IPv6"}, true),
		Entry("the second goes", families{"IPv6", "IPv4"}, families{"IPv6"}, families{"IPv6"}, true),
		Entry("the order turns: nothing changes", families{"IPv6", "IPv4"}, families{"IPv4", "IPv6"}, families{"IPv6", "IPv4"}, true),
		Entry("the first goes: the Service is made anew", families{"IPv4", "IPv6"}, families{"IPv6"}, families{"IPv6"}, false),
		Entry("the family changes: the Service is made anew", families{"IPv4"}, families{"IPv6"}, families{"IPv6"}, false),
	)
	It("are none here: there is an import, without an address, and it says so", func() {
		c := importing()
		c.Desired.IPFamilies, c.LocalCluster.Families = families{"IPv6"}, families{"IPv4"}
		p := c.bring()
		Expect(p.Problems).To(ConsistOf(HaveField("Reason", model.ReasonIPFamilyNotSupported)))
		Expect(c.writes).To(Equal([]string{"create ServiceImport"}))
		Expect(c.serviceImport().Spec.IPs).To(BeEmpty())
		Expect(c.serviceImport().Spec.Ports).To(HaveLen(1))

		c.LocalCluster.Families = families{"IPv4", "IPv6"}
		Expect(c.bring().Problems).To(BeEmpty())
		check(c, families{"IPv6"})

		before := c.service()
		c.LocalCluster.Families = families{"IPv4"}
		Expect(c.bring().Problems).To(ConsistOf(HaveField("Reason", model.ReasonIPFamilyNotSupported)))
		Expect(c.writes).To(BeEmpty(), "what exists stays")
		Expect(c.service()).To(Equal(before))
	})
})
