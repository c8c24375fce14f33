// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"net/netip"
	"slices"

	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// exportFromBoth makes the Service of key, with count Pods, in both clusters and
// exports it; it gives the Pods by cluster id. Each cluster is one zone.
func exportFromBoth(ctx context.Context, key types.NamespacedName, count int32, annotations map[string]string, adapt func(*corev1.ServiceSpec)) map[string][]string {
	GinkgoHelper()
	for _, m := range bothMembers() {
		m.create(ctx, newNamespace(key.Namespace))
	}
	for _, m := range bothMembers() {
		service, export := newService(key.Namespace, key.Name, corev1.ServiceTypeClusterIP), newExport(key.Namespace, key.Name)
		adapt(&service.Spec)
		export.Annotations = annotations
		m.create(ctx, newServer(key.Namespace, key.Name, count), service, export)
	}
	pods := map[string][]string{}
	for _, m := range bothMembers() {
		pods[m.ID()] = m.awaitPods(ctx, key.Namespace, key.Name, int(count))
	}
	for _, m := range bothMembers() {
		m.expectExported(ctx, key, metav1.ConditionFalse)
		m.expectImported(ctx, key, mcsv1beta1.ClusterSetIP, "a", "b")
	}
	return pods
}

// derived is the Service that stands for an import.
func (m *member) derived(ctx context.Context, imported *mcsv1beta1.ServiceImport) *corev1.Service {
	GinkgoHelper()
	service := &corev1.Service{}
	key := types.NamespacedName{Namespace: imported.Namespace, Name: imported.Annotations[model.AnnotationDerivedName]}
	Expect(m.client.Get(ctx, key, service)).To(Succeed())
	return service
}

// slicesFrom are the resource versions of what m imports of key from source, by name.
func (m *member) slicesFrom(ctx context.Context, key types.NamespacedName, source string) map[string]string {
	GinkgoHelper()
	found := map[string]string{}
	for _, s := range m.listSlices(ctx, key, client.MatchingLabels{model.LabelServiceName: key.Name, model.LabelSourceCluster: source}) {
		found[s.Name] = s.ResourceVersion
	}
	return found
}

// settledSlicesFrom is slicesFrom once every slice of the Service in source, and
// every copy of it in m, holds count endpoints that are all ready. From then on
// no write is due: a Pod that starts or ends changes the slices of the two IP
// families one after the other, and several times.
func (m *member) settledSlicesFrom(ctx context.Context, key types.NamespacedName, source *member, count int) map[string]string {
	GinkgoHelper()
	imported := client.MatchingLabels{model.LabelServiceName: key.Name, model.LabelSourceCluster: source.ID()}
	Eventually(ctx, func(g Gomega) {
		all := slices.Concat(
			source.listSlices(ctx, key, client.MatchingLabels{discoveryv1.LabelServiceName: key.Name}), m.listSlices(ctx, key, imported))
		g.Expect(all).To(HaveLen(4), "one slice of each IP family on both sides")
		for _, s := range all {
			g.Expect(s.Endpoints).To(HaveLen(count), s.Name)
			for _, e := range s.Endpoints {
				g.Expect(e.Conditions.Ready).To(HaveValue(BeTrue()), s.Name)
			}
		}
	}).Should(Succeed())
	return m.slicesFrom(ctx, key, source.ID())
}

func (m *member) listSlices(ctx context.Context, key types.NamespacedName, labels client.MatchingLabels) []discoveryv1.EndpointSlice {
	GinkgoHelper()
	var list discoveryv1.EndpointSliceList
	Expect(m.client.List(ctx, &list, client.InNamespace(key.Namespace), labels)).To(Succeed())
	return list.Items
}

var _ = Describe("trafficDistribution", kep("clustersetip", "global-properties"), func() {
	key := types.NamespacedName{Namespace: "traffic", Name: "close"}

	It("stands on import and derived Service, and keeps requests in the zone", func(ctx SpecContext) {
		const wanted = corev1.ServiceTrafficDistributionPreferClose
		pods := exportFromBoth(ctx, key, 1, nil, func(s *corev1.ServiceSpec) { s.TrafficDistribution = ptr.To(wanted) })
		for _, m := range bothMembers() {
			imported := m.expectImported(ctx, key, mcsv1beta1.ClusterSetIP, "a", "b")
			Expect(imported.Spec.TrafficDistribution).To(HaveValue(Equal(wanted)))
			Expect(m.derived(ctx, imported).Spec.TrafficDistribution).To(HaveValue(Equal(wanted)))
			m.expectAnswers(ctx, hostOf(key), servicePort, pods[m.ID()]...)
		}
	})
})

var _ = Describe("sessionAffinity", kep("session-affinity"), func() {
	key := types.NamespacedName{Namespace: "affinity", Name: "sticky"}

	It("stands on import and derived Service, and one client keeps to one Pod", func(ctx SpecContext) {
		pods := exportFromBoth(ctx, key, 2, nil, func(s *corev1.ServiceSpec) {
			s.SessionAffinity = corev1.ServiceAffinityClientIP
			s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](3600)}}
		})
		for _, m := range bothMembers() {
			imported := m.expectImported(ctx, key, mcsv1beta1.ClusterSetIP, "a", "b")
			Expect(imported.Spec.SessionAffinity).To(Equal(corev1.ServiceAffinityClientIP))
			derived := m.derived(ctx, imported)
			Expect(derived.Spec.SessionAffinity).To(Equal(corev1.ServiceAffinityClientIP))
			Expect(derived.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds).To(HaveValue(Equal(int32(3600))))
			m.expectAddresses(ctx, hostOf(key), imported.Spec.IPs...)
			for _, ip := range imported.Spec.IPs { // a client has an address in each family, and is two clients
				var first []string
				Eventually(ctx, func() (err error) {
					first, err = m.ask(ctx, ip, servicePort, 1)
					return err
				}).Should(Succeed())
				Expect(slices.Concat(pods["a"], pods["b"])).To(ContainElement(first[0]))
				m.expectOnly(ctx, ip, first[0])
			}
		}
	})
})

// Where Docker has no IPv6 it proves what a single family is like, and says so;
// else, each family.
var _ = Describe("A Service that prefers two IP families", kep("clustersetip", "dns"), func() {
	key := types.NamespacedName{Namespace: "families", Name: "dual"}

	It("has one clusterset IP for each family that the nodes have", func(ctx SpecContext) {
		families := clusterA.families(ctx)
		Expect(clusterB.families(ctx)).To(Equal(families))
		step("the nodes have Pod networks of %v", families)
		AddReportEntry("IP families of the nodes", families, ReportEntryVisibilityAlways)
		pods := exportFromBoth(ctx, key, 1, nil, func(s *corev1.ServiceSpec) { s.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyPreferDualStack) })
		for _, m := range bothMembers() {
			imported := m.expectImported(ctx, key, mcsv1beta1.ClusterSetIP, "a", "b")
			Expect(imported.Spec.IPFamilies).To(Equal(families))
			Expect(imported.Spec.IPs).To(HaveLen(len(families)))
			for i, ip := range imported.Spec.IPs {
				Expect(familyOf(netip.MustParseAddr(ip))).To(Equal(families[i]), ip)
				m.expectAnswers(ctx, ip, servicePort, slices.Concat(pods["a"], pods["b"])...)
			}
			if !slices.Contains(families, corev1.IPv6Protocol) {
				m.expectDNS(ctx, hostOf(key), dns.TypeAAAA) // the name is there, and has no such address
			}
		}
	})
})

// families are those of the Pod networks of m's nodes, in order.
func (m *member) families(ctx context.Context) []corev1.IPFamily {
	GinkgoHelper()
	nodes, err := m.typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	Expect(nodes.Items).NotTo(BeEmpty())
	var found []corev1.IPFamily
	for _, cidr := range nodes.Items[0].Spec.PodCIDRs {
		found = append(found, familyOf(netip.MustParsePrefix(cidr).Addr()))
	}
	return found
}

func familyOf(address netip.Addr) corev1.IPFamily {
	if address.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}
