// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// The first example of the documentation, from export to un-export.
var _ = Describe("web-service, exported from a", Ordered, kep("exporting-services", "importing-services", "dns"), func() {
	web := types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "web-service"}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "web"}}

	BeforeAll(func(ctx SpecContext) { clusterA.applyFile(ctx, "web.yaml") })

	It("is imported, with status on both sides", func(ctx SpecContext) {
		clusterA.expectExported(ctx, web, metav1.ConditionFalse)
		for _, m := range bothMembers() {
			imported := m.expectImported(ctx, web, mcsv1beta1.ClusterSetIP, "a")
			Expect(imported.Spec.Ports).To(ConsistOf(And(HaveField("Name", "http"), HaveField("Port", int32(servicePort)))))
			m.expectAddresses(ctx, hostOf(web), imported.Spec.IPs...)
		}
	})

	It("is reached by name from Pods in b and in a, every Pod of it", func(ctx SpecContext) {
		pods := clusterA.awaitPods(ctx, web.Namespace, "web", 2)
		clusterB.expectAnswers(ctx, hostOf(web), servicePort, pods...)
		clusterA.expectAnswers(ctx, hostOf(web), servicePort, pods...)
	})

	It("follows its Pods as they come and go", func(ctx SpecContext) {
		for _, count := range []int{4, 1, 2} {
			Expect(clusterA.patch(ctx, deployment, replicas(count))).To(Succeed())
			pods := clusterA.awaitPods(ctx, web.Namespace, "web", count)
			clusterB.expectAnswers(ctx, hostOf(web), servicePort, pods...)
		}
	})

	It("is gone everywhere once it is no longer exported", func(ctx SpecContext) {
		Expect(clusterA.client.Delete(ctx, newExport(web.Namespace, web.Name))).To(Succeed())
		for _, m := range bothMembers() {
			m.expectNoTrace(ctx, web)
		}
		By("leaving what its owner made")
		pods := clusterA.awaitPods(ctx, web.Namespace, "web", 2)
		Expect(clusterA.client.Get(ctx, web, &corev1.Service{})).To(Succeed())
		clusterA.expectAnswers(ctx, web.Name+"."+web.Namespace, servicePort, pods...)
	})

	It("comes back when it is exported again", func(ctx SpecContext) {
		clusterA.create(ctx, newExport(web.Namespace, web.Name))
		clusterB.expectImported(ctx, web, mcsv1beta1.ClusterSetIP, "a")
		clusterB.expectAnswers(ctx, hostOf(web), servicePort, clusterA.awaitPods(ctx, web.Namespace, "web", 2)...)
	})
})

var _ = Describe("Services of other types", kep("service-types"), func() {
	const namespace = "types"

	It("are imported as ClusterSetIP and reached", func(ctx SpecContext) {
		for _, m := range bothMembers() {
			m.create(ctx, newNamespace(namespace))
		}
		for name, kind := range map[string]corev1.ServiceType{"nodeport": corev1.ServiceTypeNodePort, "balancer": corev1.ServiceTypeLoadBalancer} {
			clusterA.create(ctx, newServer(namespace, name, 1), newService(namespace, name, kind), newExport(namespace, name))
		}
		for _, name := range []string{"nodeport", "balancer"} {
			key := types.NamespacedName{Namespace: namespace, Name: name}
			clusterA.expectExported(ctx, key, metav1.ConditionFalse)
			clusterB.expectImported(ctx, key, mcsv1beta1.ClusterSetIP, "a")
			clusterB.expectAnswers(ctx, hostOf(key), servicePort, clusterA.awaitPods(ctx, namespace, name, 1)...)
		}
	})
})

var _ = Describe("A Pod that is not ready", kep("tracking-endpoints"), func() {
	key := types.NamespacedName{Namespace: "readiness", Name: "gated"}

	It("gets no requests from another cluster until it is", func(ctx SpecContext) {
		for _, m := range bothMembers() {
			m.create(ctx, newNamespace(key.Namespace))
		}
		server := newServer(key.Namespace, key.Name, 2)
		server.Spec.Template.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: gate}}
		clusterA.create(ctx, server, newService(key.Namespace, key.Name, corev1.ServiceTypeClusterIP), newExport(key.Namespace, key.Name))
		ips := map[string][]string{}
		Eventually(ctx, func() map[string][]string {
			ips = clusterA.podIPs(ctx, key.Namespace, key.Name)
			return ips
		}).Should(And(HaveLen(2), HaveEach(HaveLen(len(clusterA.Network().PodCIDRs)))))
		for name := range ips {
			clusterA.open(ctx, key.Namespace, name, true)
		}
		pods := clusterA.awaitPods(ctx, key.Namespace, key.Name, 2)
		clusterB.expectAnswers(ctx, hostOf(key), servicePort, pods...)

		clusterA.open(ctx, key.Namespace, pods[0], false)
		clusterB.expectAnswers(ctx, hostOf(key), servicePort, pods[1])
		var slices discoveryv1.EndpointSliceList
		Expect(clusterB.client.List(ctx, &slices, client.InNamespace(key.Namespace))).To(Succeed())
		var perFamily []any // one slice for each
		for i := range clusterA.Network().PodCIDRs {
			perFamily = append(perFamily, HaveField("Endpoints", ConsistOf(
				And(HaveField("Addresses", ConsistOf(ips[pods[0]][i])), HaveField("Conditions.Ready", HaveValue(BeFalse()))),
				And(HaveField("Addresses", ConsistOf(ips[pods[1]][i])), HaveField("Conditions.Ready", HaveValue(BeTrue()))),
			)))
		}
		Expect(slices.Items).To(ConsistOf(perFamily...))

		clusterA.open(ctx, key.Namespace, pods[0], true)
		clusterB.expectAnswers(ctx, hostOf(key), servicePort, pods...)
	})
})

var _ = Describe("A namespace that only the exporting cluster has", kep("importing-services"), func() {
	key := types.NamespacedName{Namespace: "late", Name: "early"}

	It("is waited for, and gets the import when it comes", func(ctx SpecContext) {
		clusterA.create(ctx, newNamespace(key.Namespace))
		clusterA.create(ctx, newServer(key.Namespace, key.Name, 1), newService(key.Namespace, key.Name, corev1.ServiceTypeClusterIP), newExport(key.Namespace, key.Name))
		clusterA.expectExported(ctx, key, metav1.ConditionFalse)
		clusterA.expectImported(ctx, key, mcsv1beta1.ClusterSetIP, "a")
		Expect(clusterB.traces(ctx, key)).To(BeEmpty())
		clusterB.expectNoName(ctx, hostOf(key))
		step("in b: nothing of %s, for there is no such namespace", key)

		clusterB.create(ctx, newNamespace(key.Namespace))
		clusterB.expectImported(ctx, key, mcsv1beta1.ClusterSetIP, "a")
		clusterB.expectAnswers(ctx, hostOf(key), servicePort, clusterA.awaitPods(ctx, key.Namespace, key.Name, 1)...)
	})
})
