// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"slices"

	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/status/condition"
)

// Of two clusters, a exports first, so that its ports prevail.
var _ = Describe("Named ports of a Service that both export", Ordered, kep("service-port"), func() {
	key := types.NamespacedName{Namespace: "ports", Name: "named"}
	const extraPort = 81
	pods := map[string][]string{} // by cluster id
	service := func() *corev1.Service { return newService(key.Namespace, key.Name, corev1.ServiceTypeClusterIP) }
	all := func() []string { return slices.Concat(pods["a"], pods["b"]) }

	BeforeAll(func(ctx SpecContext) {
		for _, m := range bothMembers() {
			m.create(ctx, newNamespace(key.Namespace))
			named := service()
			named.Spec.Ports[0].Name = "http"
			m.create(ctx, newServer(key.Namespace, key.Name, 1), named)
		}
		clusterA.create(ctx, newExport(key.Namespace, key.Name))
		clusterB.expectImported(ctx, key, mcsv1beta1.ClusterSetIP, "a")
		clusterB.create(ctx, newExport(key.Namespace, key.Name))
		for _, m := range bothMembers() {
			pods[m.ID()] = m.awaitPods(ctx, key.Namespace, key.Name, 1)
		}
	})

	It("lead to the Pods of both by clusterset IP and by name, and have SRV records", kep("clustersetip", "dns"), func(ctx SpecContext) {
		for _, m := range bothMembers() {
			imported := m.expectImported(ctx, key, mcsv1beta1.ClusterSetIP, "a", "b")
			Expect(imported.Spec.IPs).NotTo(BeEmpty())
			for _, ip := range imported.Spec.IPs {
				m.expectAnswers(ctx, ip, servicePort, all()...)
			}
			m.expectAnswers(ctx, hostOf(key), servicePort, all()...)
			m.expectDNS(ctx, "_http._tcp."+hostOf(key), dns.TypeSRV, "80 "+hostOf(key)+".")
			m.expectDNS(ctx, "_https._tcp."+hostOf(key), dns.TypeSRV, nxdomain)
		}
	})

	It("conflict when one name has two numbers, and only who has the number of a gets its requests", func(ctx SpecContext) {
		Expect(clusterB.patch(ctx, service(), `{"spec": {"ports": [{"name": "http", "port": 9090, "targetPort": 8080}]}}`)).To(Succeed())
		for _, m := range bothMembers() {
			m.expectConflict(ctx, key, "80/TCP", "9090/TCP in b")
			m.expectAnswers(ctx, hostOf(key), servicePort, pods["a"]...)
		}
	})

	It("conflict when one number has two names, and only who has the name of a gets its requests", func(ctx SpecContext) {
		Expect(clusterB.patch(ctx, service(), `{"spec": {"ports": [{"name": "web", "port": 80, "targetPort": 8080}]}}`)).To(Succeed())
		for _, m := range bothMembers() {
			m.expectConflict(ctx, key, `port "http"`, `port "web"`)
			m.expectAnswers(ctx, hostOf(key), servicePort, pods["a"]...)
			imported := m.expectImported(ctx, key, mcsv1beta1.ClusterSetIP, "a", "b")
			Expect(imported.Spec.Ports).To(ConsistOf(And(HaveField("Name", "http"), HaveField("Port", int32(servicePort)))))
		}
	})

	It("are united, and one that b alone has leads to b alone", func(ctx SpecContext) {
		Expect(clusterB.patch(ctx, service(), `{"spec": {"ports": [
			{"name": "http", "port": 80, "targetPort": 8080}, {"name": "extra", "port": 81, "targetPort": 8080}]}}`)).To(Succeed())
		for _, m := range bothMembers() {
			m.expectAnswers(ctx, hostOf(key), extraPort, pods["b"]...)
			m.expectAnswers(ctx, hostOf(key), servicePort, all()...)
			m.expectDNS(ctx, "_extra._tcp."+hostOf(key), dns.TypeSRV, "81 "+hostOf(key)+".")
			m.expectConflict(ctx, key, `port "extra": absent in a; 81/TCP in b (used)`)
		}
		Expect(clusterB.patch(ctx, service(), `{"spec": {"ports": [{"name": "http", "port": 80, "targetPort": 8080}]}}`)).To(Succeed())
		for _, m := range bothMembers() {
			m.expectExported(ctx, key, metav1.ConditionFalse)
		}
	})
})

// expectConflict waits until Conflict of a ServiceExport is for its ports and says all of words.
func (m *member) expectConflict(ctx context.Context, key types.NamespacedName, words ...string) {
	GinkgoHelper()
	var message string
	Eventually(ctx, func(g Gomega) {
		export, err := m.exportOf(ctx, key)
		g.Expect(err).NotTo(HaveOccurred())
		found := meta.FindStatusCondition(export.Status.Conditions, condition.TypeConflict)
		g.Expect(found).NotTo(BeNil())
		g.Expect(*found).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", string(mcsv1beta1.ServiceExportReasonPortConflict))))
		message = found.Message
		for _, w := range words {
			g.Expect(message).To(ContainSubstring(w))
		}
	}).Should(Succeed(), "Conflict of ServiceExport %s in cluster %s", key, m.ID())
	step("in %s: ServiceExport %s: Conflict: %s", m.ID(), key, message)
}

var _ = Describe("A Service that both clusters have and a alone exports", kep("exporting-services", "importing-services"), func() {
	key := types.NamespacedName{Namespace: "only", Name: "one"}

	It("is answered by a alone", func(ctx SpecContext) {
		for _, m := range bothMembers() {
			m.create(ctx, newNamespace(key.Namespace))
			m.create(ctx, newServer(key.Namespace, key.Name, 1), newService(key.Namespace, key.Name, corev1.ServiceTypeClusterIP))
		}
		clusterA.create(ctx, newExport(key.Namespace, key.Name))
		exporter := clusterA.awaitPods(ctx, key.Namespace, key.Name, 1)
		own := clusterB.awaitPods(ctx, key.Namespace, key.Name, 1)
		for _, m := range bothMembers() {
			m.expectImported(ctx, key, mcsv1beta1.ClusterSetIP, "a")
			m.expectAnswers(ctx, hostOf(key), servicePort, exporter...)
			for _, target := range m.targets(ctx, hostOf(key)) {
				m.expectOnly(ctx, target, exporter...)
			}
		}
		clusterB.expectAnswers(ctx, key.Name+"."+key.Namespace, servicePort, own...) // cluster.local is what it was
	})
})
