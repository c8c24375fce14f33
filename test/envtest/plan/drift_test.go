// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// What the API server compares after a user's edit was reverted: everything but
// what it counts itself.
func content(o client.Object) client.Object {
	c, _ := o.DeepCopyObject().(client.Object)
	c.SetResourceVersion("")
	c.SetManagedFields(nil)
	c.SetGeneration(0)
	return c
}

var _ = Describe("a user's edit of a derived object is reverted", func() {
	edit := func(o client.Object) {
		GinkgoHelper()
		Expect(api.Update(ctx, o, client.FieldOwner("user"))).To(Succeed())
	}
	DescribeTable("of the Service", func(change func(s *corev1.Service)) {
		c := importing()
		c.Desired.Ports = append(c.Desired.Ports, mcsv1beta1.ServicePort{Name: "admin", Protocol: "TCP", Port: 90})
		c.bring()
		before := c.service()
		edited := before.DeepCopy()
		change(edited)
		edit(edited)
		Expect(content(c.service())).NotTo(Equal(content(before)), "the edit must change something")
		p := c.bring()
		Expect(p.Problems).To(BeEmpty())
		Expect(content(c.service())).To(Equal(content(before)))
	},
		Entry("a selector", func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "mine"} }),
		Entry("a port more", func(s *corev1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "mine", Port: 99, Protocol: "TCP"})
		}),
		Entry("a port less", func(s *corev1.Service) { s.Spec.Ports = s.Spec.Ports[:1] }),
		Entry("all ports replaced", func(s *corev1.Service) {
			s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 81, Protocol: "TCP"}, {Name: "x", Port: 80, Protocol: "TCP"}}
		}),
		Entry("an appProtocol", func(s *corev1.Service) { s.Spec.Ports[0].AppProtocol = ptr("http") }),
		Entry("a target port", func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromString("web") }),
		Entry("external IPs", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.1"} }),
		Entry("a node port", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }),
		Entry("a load balancer with all it may have", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.LoadBalancerIP = corev1.ServiceTypeLoadBalancer, "192.0.2.1"
			s.Spec.LoadBalancerSourceRanges, s.Spec.LoadBalancerClass = []string{"192.0.2.0/24"}, ptr("example.com/lb")
			s.Spec.AllocateLoadBalancerNodePorts, s.Spec.ExternalTrafficPolicy = ptr(false), corev1.ServiceExternalTrafficPolicyLocal
		}),
		Entry("an external name beside", func(s *corev1.Service) { s.Spec.ExternalName = "example.com" }),
		Entry("affinity", func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }),
		Entry("traffic distribution", func(s *corev1.Service) {
			s.Spec.TrafficDistribution = ptr(corev1.ServiceTrafficDistributionPreferClose)
		}),
		Entry("unready addresses", func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }),
		Entry("a second IP family", func(s *corev1.Service) {
			s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = ptr(corev1.IPFamilyPolicyRequireDualStack), []corev1.IPFamily{"IPv4", "IPv6"}
		}),
		Entry("a label that kube-proxy reads", func(s *corev1.Service) { s.Labels["service.kubernetes.io/service-proxy-name"] = "mine" }),
		Entry("our labels", func(s *corev1.Service) { s.Labels = map[string]string{model.LabelSourceCluster: "x"} }),
		Entry("all at once", func(s *corev1.Service) {
			s.Spec.Selector, s.Spec.ExternalIPs = map[string]string{"app": "mine"}, []string{"192.0.2.1"}
			s.Spec.Ports = []corev1.ServicePort{{Name: "admin", Port: 81, Protocol: "TCP", TargetPort: intstr.FromInt32(1)}}
			s.Spec.SessionAffinity, s.Spec.Type = corev1.ServiceAffinityClientIP, corev1.ServiceTypeLoadBalancer
			s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
		}),
	)

	It("also if the Service is made an ExternalName, whose address is lost", func() {
		c := importing()
		c.Desired.IPFamilies = []corev1.IPFamily{"IPv6", "IPv4"}
		c.bring()
		s := c.service()
		s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.com"
		edit(s)
		c.bring()
		s = c.service()
		Expect(s.Spec.Type).To(Equal(corev1.ServiceTypeClusterIP))
		Expect(s.Spec.ExternalName).To(BeEmpty())
		Expect(s.Spec.IPFamilies).To(Equal([]corev1.IPFamily{"IPv6", "IPv4"}))
		Expect(c.serviceImport().Spec.IPs).To(Equal(s.Spec.ClusterIPs))
	})

	It("and after it ports still come and go with the exports", func() {
		c := importing()
		c.bring()
		s := c.service()
		s.Spec.Ports[0].Name = "mine"
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "http", Port: 99, Protocol: "TCP"})
		edit(s)
		c.bring()
		Expect(c.service().Spec.Ports).To(HaveExactElements(And(HaveField("Name", "http"), HaveField("Port", BeEquivalentTo(80)))))
		c.Desired.Ports = []mcsv1beta1.ServicePort{{Name: "http", Protocol: "TCP", Port: 8080}}
		c.Desired.Constituents[0].Declared = c.Desired.Ports
		c.bring()
		Expect(c.service().Spec.Ports).To(HaveExactElements(And(HaveField("Name", "http"), HaveField("Port", BeEquivalentTo(8080)))))
	})

	It("of a slice and a ServiceImport; their own labels stay", func() {
		c := importing()
		c.Desired.Type = mcsv1beta1.Headless
		c.Desired.SessionAffinity = ""
		c.bring()
		slice, imp := c.slice("b"), c.serviceImport()
		want := []client.Object{content(slice), content(imp)}
		for _, o := range want {
			o.GetLabels()["mine"] = "yes"
		}
		slice.Labels["mine"], slice.Labels["service.kubernetes.io/headless"], slice.Labels[discoveryv1.LabelServiceName] = "yes", "", "other"
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.9.9.9"}})
		imp.Labels["mine"], imp.Labels[model.LabelSourceCluster] = "yes", "x"
		imp.Spec.IPs, imp.Spec.SessionAffinity, imp.Spec.Ports = []string{"10.9.9.9"}, "ClientIP", nil
		imp.Spec.Ports = []mcsv1beta1.ServicePort{{Name: "mine", Protocol: "TCP", Port: 1}}
		edit(slice)
		edit(imp)
		c.bring()
		Expect([]client.Object{content(c.slice("b")), content(c.serviceImport())}).To(Equal(want))
	})
})
