// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

const (
	outage = 55 * time.Second
	// recovery bounds what follows: the kubelet restarts controllers, which ended
	// for want of an API server, after a pause that doubles each time.
	recovery = 6 * time.Minute
)

var _ = Describe("While the API server of a is stopped for longer than it takes to be Lost", Serial, kep("endpoint-ttl"), func() {
	fromA, fromB := types.NamespacedName{Namespace: "stopped", Name: "of-a"}, types.NamespacedName{Namespace: "stopped", Name: "of-b"}

	It("no request fails, b says since when nothing is heard of a, and that ends when it ends", func(ctx SpecContext) {
		for _, m := range bothMembers() {
			m.create(ctx, newNamespace(fromA.Namespace))
		}
		for key, m := range map[types.NamespacedName]*member{fromA: clusterA, fromB: clusterB} {
			m.create(ctx, newServer(key.Namespace, key.Name, 2), newService(key.Namespace, key.Name, corev1.ServiceTypeClusterIP), newExport(key.Namespace, key.Name))
		}
		clusterB.expectAnswers(ctx, hostOf(fromA), servicePort, clusterA.awaitPods(ctx, fromA.Namespace, fromA.Name, 2)...)
		clusterB.expectSource(ctx, fromA, condition.ReasonConnected)
		clusterB.expectAvailable(ctx, fromB, metav1.ConditionTrue, model.ReasonImported)
		before := clusterB.settledSlicesFrom(ctx, fromA, clusterA, 2)
		clusterA.awaitHeartbeats(ctx, 2) // the first that b sees confirms nothing

		stop := keepAsking(ctx, clusterB, hostOf(fromA))
		DeferCleanup(func(ctx SpecContext) {
			Expect(clusterA.StartAPIServer(ctx)).To(Succeed())
			clusterA.awaitComity(ctx) // whatever failed here shall fail here alone
			// The watches of cert-manager may deliver nothing for two minutes after the API server is back.
			clusterA.scaleCertManager(ctx, 0)
			clusterA.scaleCertManager(ctx, 1)
		})
		Expect(clusterA.StopAPIServer(ctx)).To(Succeed())
		stopped := time.Now()
		step("in a: the API server is stopped")
		Expect(clusterB.expectSource(ctx, fromA, condition.ReasonLost)).To(ContainSubstring("last confirmed"))
		lost := time.Since(stopped)
		step("in b: told after %.0fs", lost.Seconds())
		Eventually(ctx, func() string { return clusterB.expectAvailable(ctx, fromB, metav1.ConditionTrue, model.ReasonImported) }).
			Should(ContainSubstring("no heartbeat of cluster a was seen since"))
		letPass(ctx, stopped, outage)
		Expect(clusterB.slicesFrom(ctx, fromA, "a")).To(Equal(before), "slices from a stay as they are")

		Expect(clusterA.StartAPIServer(ctx)).To(Succeed())
		back := time.Now()
		step("in a: the API server is back, after %.0fs", time.Since(stopped).Seconds())
		Eventually(ctx, clusterB.source).WithArguments(ctx, fromA).WithTimeout(recovery).
			Should(HaveField("Reason", condition.ReasonConnected))
		step("in b: a is Connected again, %.0fs after its API server was", time.Since(back).Seconds())
		Eventually(ctx, func() string { return clusterB.expectAvailable(ctx, fromB, metav1.ConditionTrue, model.ReasonImported) }).
			ShouldNot(ContainSubstring("no heartbeat"))
		requests, failed := stop()
		AddReportEntry("requests while the API server of a was stopped, and until its heartbeat was seen again",
			map[string]any{"sent": requests, "failed": len(failed), "lost after": lost.Round(time.Second).String()}, ReportEntryVisibilityAlways)
		Expect(failed).To(BeEmpty(), "of %d requests", requests)
		Expect(requests).To(BeNumerically(">", 100))

		clusterA.awaitComity(ctx)
		clusterB.expectAnswers(ctx, hostOf(fromA), servicePort, clusterA.awaitPods(ctx, fromA.Namespace, fromA.Name, 2)...)
		clusterA.expectAnswers(ctx, hostOf(fromB), servicePort, clusterB.awaitPods(ctx, fromB.Namespace, fromB.Name, 2)...)
	})
})

// awaitHeartbeats waits until the member has renewed its Lease so many times.
func (m *member) awaitHeartbeats(ctx context.Context, times int) {
	GinkgoHelper()
	renewed := func() (metav1.MicroTime, error) {
		lease, err := m.typed.CoordinationV1().Leases(model.ExchangeNamespace(model.ClusterID(m.ID()))).Get(ctx, m.ID(), metav1.GetOptions{})
		if err != nil {
			return metav1.MicroTime{}, err
		}
		return ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}), nil
	}
	for range times {
		var last metav1.MicroTime
		Eventually(ctx, func() (err error) { last, err = renewed(); return }).Should(Succeed())
		Eventually(ctx, renewed).WithTimeout(time.Minute).ShouldNot(Equal(last))
	}
}

// source is what a ServiceImport says of the clusters that contribute to it.
func (m *member) source(ctx context.Context, key types.NamespacedName) (*metav1.Condition, error) {
	imported := &mcsv1beta1.ServiceImport{}
	if err := m.client.Get(ctx, key, imported); err != nil {
		return nil, err
	}
	if found := meta.FindStatusCondition(imported.Status.Conditions, condition.TypeAvailable); found != nil {
		return found, nil
	}
	return &metav1.Condition{}, nil
}

// expectSource waits until it says reason, and gives the message.
func (m *member) expectSource(ctx context.Context, key types.NamespacedName, reason string) string {
	GinkgoHelper()
	var found *metav1.Condition
	Eventually(ctx, func() (_ *metav1.Condition, err error) {
		found, err = m.source(ctx, key)
		return found, err
	}).Should(HaveField("Reason", reason), "Available of ServiceImport %s in cluster %s", key, m.ID())
	step("in %s: ServiceImport %s: Available=%s, %s: %s", m.ID(), key, found.Status, found.Reason, found.Message)
	return found.Message
}
