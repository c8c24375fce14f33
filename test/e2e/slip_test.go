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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/status/condition"
)

// slipWatched is how long nothing may change after a slip. Before absence was
// stated, traffic stopped after three to seven seconds.
const slipWatched = 10 * time.Second

// conditionOf is one condition of the ServiceImport key in m; nil if it has none.
func (m *member) conditionOf(ctx context.Context, key types.NamespacedName, name string) *metav1.Condition {
	GinkgoHelper()
	imported := &mcsv1beta1.ServiceImport{}
	Expect(m.client.Get(ctx, key, imported)).To(Succeed())
	return meta.FindStatusCondition(imported.Status.Conditions, name)
}

// A slip of an administrator takes no endpoint from anybody. More of them are in test/envtest/faults and the simulator.
var _ = Describe("A slip", Ordered, Serial, beyond(), func() {
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

	AfterAll(func(ctx SpecContext) {
		for _, key := range keys {
			Expect(clusterA.client.Delete(ctx, newExport(namespace, key.Name))).To(Succeed())
			clusterB.expectNoTrace(ctx, key)
		}
	})
})
