// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

var _ = Describe("A ServiceExport says whether others import it:", kep("exporting-services", "importing-services"), func() {
	It("not without the namespace, then imported, one event each", func(ctx SpecContext) {
		key := types.NamespacedName{Namespace: "available", Name: "told"}
		clusterA.create(ctx, newNamespace(key.Namespace))
		clusterA.create(ctx, newServer(key.Namespace, key.Name, 1), newService(key.Namespace, key.Name, corev1.ServiceTypeClusterIP), newExport(key.Namespace, key.Name))
		Expect(clusterA.expectAvailable(ctx, key, metav1.ConditionFalse, model.ReasonNamespaceMissing)).
			To(And(ContainSubstring("imported by 0 of 1 clusters"), ContainSubstring("in b since")))
		clusterB.create(ctx, newNamespace(key.Namespace))
		Expect(clusterA.expectAvailable(ctx, key, metav1.ConditionTrue, model.ReasonImported)).
			To(ContainSubstring("imported by the one cluster in scope: b"))
		clusterB.expectAnswers(ctx, hostOf(key), servicePort, clusterA.awaitPods(ctx, key.Namespace, key.Name, 1)...)
		for _, reason := range []string{model.ReasonNamespaceMissing, model.ReasonImported} {
			Eventually(ctx, clusterA.told).WithArguments(ctx, key, reason).Should(Equal(1), reason)
			Consistently(ctx, clusterA.told).WithArguments(ctx, key, reason).Should(Equal(1), reason)
		}
	})
})

// expectAvailable waits until Available of a ServiceExport is so, and gives its message.
func (m *member) expectAvailable(ctx context.Context, key types.NamespacedName, status metav1.ConditionStatus, reason string) string {
	GinkgoHelper()
	var found *metav1.Condition
	Eventually(ctx, func(g Gomega) {
		export, err := m.exportOf(ctx, key)
		g.Expect(err).NotTo(HaveOccurred())
		found = meta.FindStatusCondition(export.Status.Conditions, condition.TypeAvailable)
		g.Expect(found).NotTo(BeNil())
		g.Expect(*found).To(And(HaveField("Status", status), HaveField("Reason", reason)))
	}).Should(Succeed(), "Available of ServiceExport %s in cluster %s", key, m.ID())
	step("in %s: ServiceExport %s: Available=%s, %s: %s", m.ID(), key, found.Status, found.Reason, found.Message)
	return found.Message
}

// told counts how often the event of a ServiceExport's Available was sent.
func (m *member) told(ctx context.Context, key types.NamespacedName, reason string) (int, error) {
	list, err := m.typed.EventsV1().Events(key.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	count := 0
	for _, e := range list.Items {
		if e.Regarding.Kind == "ServiceExport" && e.Regarding.Name == key.Name && e.Action == condition.TypeAvailable && e.Reason == reason {
			count++
			if e.Series != nil {
				count += int(e.Series.Count)
			}
		}
	}
	return count, nil
}
