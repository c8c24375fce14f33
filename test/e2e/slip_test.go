// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/status/condition"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// slipWatched is how long nothing may change after a slip. Before absence was
// stated, traffic stopped after three to seven seconds.
const slipWatched = 20 * time.Second

// conditionOf is one condition of the ServiceImport key in m; nil if it has none.
func (m *member) conditionOf(ctx context.Context, key types.NamespacedName, name string) *metav1.Condition {
	GinkgoHelper()
	imported := &mcsv1beta1.ServiceImport{}
	Expect(m.client.Get(ctx, key, imported)).To(Succeed())
	return meta.FindStatusCondition(imported.Status.Conditions, name)
}

// A slip of an administrator, in either cluster, takes no endpoint from anybody.
var _ = Describe("A slip", Ordered, beyond(), func() {
	const namespace = "slip"
	var keys []types.NamespacedName
	for n := range 3 {
		keys = append(keys, types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("web-%d", n)})
	}
	before := map[types.NamespacedName]map[string]string{}

	BeforeAll(func(ctx SpecContext) {
		for _, m := range bothMembers() {
			m.create(ctx, newNamespace(namespace))
		}
		for _, key := range keys {
			clusterA.create(ctx, newServer(namespace, key.Name, 1), newService(namespace, key.Name, corev1.ServiceTypeClusterIP), newExport(namespace, key.Name))
		}
		for _, key := range keys {
			clusterB.expectAnswers(ctx, hostOf(key), servicePort, clusterA.awaitPods(ctx, namespace, key.Name, 1)...)
			before[key] = clusterB.settledSlicesFrom(ctx, key, clusterA, 1)
		}
	})

	// expectUnchanged watches b for slipWatched.
	expectUnchanged := func(ctx context.Context) {
		GinkgoHelper()
		Consistently(ctx, func(g Gomega) {
			for _, key := range keys {
				g.Expect(clusterB.slicesFrom(ctx, key, "a")).To(Equal(before[key]), "slices of %s", key)
			}
		}).WithTimeout(slipWatched).WithPolling(time.Second).Should(Succeed())
		step("in b: nothing changed for %s", slipWatched)
		for _, key := range keys {
			clusterB.expectAnswers(ctx, hostOf(key), servicePort, clusterA.awaitPods(ctx, namespace, key.Name, 1)...)
		}
	}

	// expectFollowed scales a server in a, and back.
	expectFollowed := func(ctx context.Context) {
		GinkgoHelper()
		for _, count := range []int{2, 1} {
			Expect(clusterA.patch(ctx, newServer(namespace, keys[0].Name, 1), replicas(count))).To(Succeed())
			clusterB.expectAnswers(ctx, hostOf(keys[0]), servicePort, clusterA.awaitPods(ctx, namespace, keys[0].Name, count)...)
		}
		before[keys[0]] = clusterB.settledSlicesFrom(ctx, keys[0], clusterA, 1)
	}

	It("FAULT 26: the exchange namespace of a deleted costs b no endpoint, and `join` repairs it", func(ctx SpecContext) {
		stop := keepAsking(ctx, clusterB, hostOf(keys[2])) // no Pod of it ends
		shell.run(ctx, "kubectl --context a delete namespace comity-a --timeout=120s")
		expectUnchanged(ctx)
		shell.run(ctx, "kubectl comity join a b")
		for _, key := range keys {
			Eventually(ctx, func() *metav1.Condition { return clusterB.conditionOf(ctx, key, condition.TypeSourceMissing) }).Should(BeNil())
		}
		expectUnchanged(ctx)
		expectFollowed(ctx)
		requests, failed := stop()
		Expect(failed).To(BeEmpty(), "of %d requests", requests)
		step("from b: %d requests, none failed", requests)
	})

	It("FAULT 26: records that were deleted are missing, not withdrawn, and b says so", func(ctx SpecContext) {
		DeferCleanup(func(ctx SpecContext) { clusterA.scaleComity(ctx, 2) })
		clusterA.scaleComity(ctx, 0) // it would publish them again at once
		shell.run(ctx, "kubectl --context a -n comity-a delete exportrecords --all")
		for _, key := range keys {
			Eventually(ctx, func() *metav1.Condition { return clusterB.conditionOf(ctx, key, condition.TypeSourceMissing) }).
				Should(And(Not(BeNil()), HaveField("Status", metav1.ConditionTrue)))
		}
		step("in b: %s", clusterB.conditionOf(ctx, keys[0], condition.TypeSourceMissing).Message)
		expectUnchanged(ctx)
		clusterA.scaleComity(ctx, 2)
		for _, key := range keys {
			Eventually(ctx, func() *metav1.Condition { return clusterB.conditionOf(ctx, key, condition.TypeSourceMissing) }).Should(BeNil())
		}
		expectFollowed(ctx)
	})

	It("FAULT 27: a misspelled field of a Peer costs b no endpoint, and the Peer says so", func(ctx SpecContext) {
		stop := keepAsking(ctx, clusterB, hostOf(keys[2])) // no Pod of it ends
		shell.run(ctx, `kubectl --context b patch peer a --type merge -p '{"spec": {"clusterset": "exampel"}}'`)
		expectUnchanged(ctx)
		Eventually(ctx, clusterB.peerConditions).WithArguments(ctx, clusterA).
			Should(ContainElement(And(HaveField("Type", exchangev1alpha1.PeerAccepted), HaveField("Status", metav1.ConditionFalse), HaveField("Message", ContainSubstring("exampel")))))
		shell.run(ctx, `kubectl --context b patch peer a --type merge -p '{"spec": {"clusterset": "%s"}}'`, clusterSet)
		expectFollowed(ctx)
		requests, failed := stop()
		Expect(failed).To(BeEmpty(), "of %d requests", requests)
		step("from b: %d requests, none failed", requests)
	})

	It("FAULT 28: what b publishes by hand under a's name changes nothing in a until an administrator confirms", func(ctx SpecContext) {
		key := keys[1]
		pods := clusterA.awaitPods(ctx, namespace, key.Name, 1)
		imported := clusterA.expectImported(ctx, key, mcsv1beta1.ClusterSetIP, "a")
		DeferCleanup(func(ctx SpecContext) { clusterB.scaleComity(ctx, 2) })
		clusterB.scaleComity(ctx, 0)
		forged := &exchangev1alpha1.ExportRecord{
			ObjectMeta: metav1.ObjectMeta{Namespace: model.ExchangeNamespace("b"), Name: model.RecordName(key.Namespace, key.Name)},
			Spec: exchangev1alpha1.ExportRecordSpec{
				Service:    exchangev1alpha1.ServiceReference{Namespace: key.Namespace, Name: key.Name},
				ExportUID:  "forged",
				ExportedAt: metav1.NewTime(time.Date(2020, 6, 1, 0, 0, 0, 0, time.UTC)),
				Type:       mcsv1beta1.ClusterSetIP,
				Ports:      []mcsv1beta1.ServicePort{{Name: "x", Protocol: corev1.ProtocolTCP, Port: servicePort}},
			},
		}
		clusterB.create(ctx, forged)
		for _, kind := range []mcsv1beta1.ServiceImportType{mcsv1beta1.ClusterSetIP, mcsv1beta1.Headless} {
			Expect(clusterB.patch(ctx, forged, fmt.Sprintf(`{"spec": {"type": %q}}`, kind))).To(Succeed())
			Eventually(ctx, func() *metav1.Condition { return clusterA.conditionOf(ctx, key, "TakeoverHeld") }).Should(Not(BeNil()))
			Consistently(ctx, func(g Gomega) {
				now := &mcsv1beta1.ServiceImport{}
				g.Expect(clusterA.client.Get(ctx, key, now)).To(Succeed())
				g.Expect(now.Spec).To(Equal(imported.Spec))
			}).WithTimeout(slipWatched / 2).WithPolling(time.Second).Should(Succeed())
			clusterA.expectAnswers(ctx, hostOf(key), servicePort, pods...)
			step("in a: %s", clusterA.conditionOf(ctx, key, "TakeoverHeld").Message)
		}
		By("taking it back")
		Expect(clusterB.patch(ctx, forged, `{"spec": {"type": "ClusterSetIP", "ports": null, "withdrawn": true}}`)).To(Succeed())
		Eventually(ctx, func() *metav1.Condition { return clusterA.conditionOf(ctx, key, "TakeoverHeld") }).Should(BeNil())
		clusterA.expectAnswers(ctx, hostOf(key), servicePort, pods...)
		Expect(clusterB.client.Delete(ctx, forged)).To(Or(Succeed(), WithTransform(apierrors.IsNotFound, BeTrue())))
		clusterB.scaleComity(ctx, 2)
	})

	AfterAll(func(ctx SpecContext) {
		for _, key := range keys {
			Expect(clusterA.client.Delete(ctx, newExport(namespace, key.Name))).To(Succeed())
			clusterB.expectNoTrace(ctx, key)
		}
	})
})
