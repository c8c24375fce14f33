// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

var _ = Describe("A Service that both clusters export", Ordered, kep("constraints-and-conflict-resolution", "service-port"), func() {
	key := types.NamespacedName{Namespace: "both", Name: "api"}
	pods := map[string][]string{} // by cluster id

	BeforeAll(func(ctx SpecContext) {
		for _, m := range bothMembers() {
			m.create(ctx, newNamespace(key.Namespace))
		}
		for _, m := range bothMembers() {
			m.create(ctx, newServer(key.Namespace, key.Name, 2), newService(key.Namespace, key.Name, corev1.ServiceTypeClusterIP))
			m.create(ctx, newExport(key.Namespace, key.Name))
		}
		for _, m := range bothMembers() {
			pods[m.ID()] = m.awaitPods(ctx, key.Namespace, key.Name, 2)
		}
	})

	It("is served by the Pods of both, in both", func(ctx SpecContext) {
		for _, m := range bothMembers() {
			m.expectExported(ctx, key, metav1.ConditionFalse)
			m.expectImported(ctx, key, mcsv1beta1.ClusterSetIP, "a", "b")
			m.expectAnswers(ctx, hostOf(key), servicePort, slices.Concat(pods["a"], pods["b"])...)
		}
	})

	It("is in conflict on both sides when the ports differ, until they agree again", func(ctx SpecContext) {
		service := newService(key.Namespace, key.Name, corev1.ServiceTypeClusterIP)
		Expect(clusterB.patch(ctx, service, port(9090))).To(Succeed())
		for _, m := range bothMembers() {
			message := m.expectExported(ctx, key, metav1.ConditionTrue)
			step("in %s: Conflict: %s", m.ID(), message)
			Expect(message).To(And(ContainSubstring("80/TCP"), ContainSubstring("9090/TCP"), ContainSubstring(" b")))
			export, err := m.exportOf(ctx, key)
			Expect(err).NotTo(HaveOccurred())
			Expect(export.Status.Conditions).To(ContainElement(And(
				HaveField("Type", string(mcsv1beta1.ServiceExportConditionConflict)),
				HaveField("Reason", string(mcsv1beta1.ServiceExportReasonPortConflict)))))
		}
		By("sending the port that a resolved to a alone")
		for _, m := range bothMembers() {
			m.expectAnswers(ctx, hostOf(key), servicePort, pods["a"]...)
		}

		Expect(clusterB.patch(ctx, service, port(servicePort))).To(Succeed())
		for _, m := range bothMembers() {
			m.expectExported(ctx, key, metav1.ConditionFalse)
			m.expectAnswers(ctx, hostOf(key), servicePort, slices.Concat(pods["a"], pods["b"])...)
		}
	})

	It("is served by the other alone once one stops exporting it", func(ctx SpecContext) {
		Expect(clusterA.client.Delete(ctx, newExport(key.Namespace, key.Name))).To(Succeed())
		for _, m := range bothMembers() {
			m.expectImported(ctx, key, mcsv1beta1.ClusterSetIP, "b")
			m.expectAnswers(ctx, hostOf(key), servicePort, pods["b"]...)
		}
		Expect(clusterA.recordNamespaces(ctx, key)).To(BeEmpty())
	})
})

// port is a patch of a Service.
func port(number int) string {
	return fmt.Sprintf(`{"spec": {"ports": [{"port": %d, "targetPort": %d}]}}`, number, podPort)
}
