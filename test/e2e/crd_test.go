// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/install"
)

// noRestart is how long Pods are watched for restarts. A running agent checks every five seconds whether its
// definitions are served, and one that starts every two.
const noRestart = 12 * time.Second

// ImportRecords are what b reports with; without their definition it reports
// nothing, and what is imported stays.
var _ = Describe("FAULT 36: without a CustomResourceDefinition of ours in b", Ordered, Serial, beyond(), func() {
	key := types.NamespacedName{Namespace: "definitions", Name: "steady"}
	definition := "importrecords.exchange.comity.dev"
	file := filepath.Join(install.Root(), "config", "crd", "exchange.comity.dev_importrecords.yaml")
	var pods []string

	BeforeAll(func(ctx SpecContext) {
		for _, m := range bothMembers() {
			m.create(ctx, newNamespace(key.Namespace))
		}
		clusterA.create(ctx, newServer(key.Namespace, key.Name, 1), newService(key.Namespace, key.Name, corev1.ServiceTypeClusterIP), newExport(key.Namespace, key.Name))
		pods = clusterA.awaitPods(ctx, key.Namespace, key.Name, 1)
		clusterB.expectAnswers(ctx, hostOf(key), servicePort, pods...)
		clusterA.expectAvailable(ctx, key, metav1.ConditionTrue, model.ReasonImported)
		DeferCleanup(func(ctx SpecContext) {
			shell.run(ctx, "kubectl --context b apply --server-side --force-conflicts -f %s", file)
			clusterB.awaitComity(ctx)
		})
	})

	It("that was removed while it runs, no replica restarts and traffic goes on", func(ctx SpecContext) {
		before := clusterB.restarts(ctx)
		shell.run(ctx, "kubectl --context b delete crd %s --wait", definition)
		Consistently(ctx, clusterB.restarts).WithArguments(ctx).WithTimeout(noRestart).WithPolling(time.Second).Should(Equal(before))
		clusterB.expectAnswers(ctx, hostOf(key), servicePort, pods...)
	})

	It("that is missing at the start, it waits, says for which, and does not restart", func(ctx SpecContext) {
		Expect(clusterB.client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(install.Namespace), client.MatchingLabels{"app.kubernetes.io/name": "comity"})).To(Succeed())
		Eventually(ctx, func() string {
			return shell.quietly(ctx, "kubectl --context b -n comity-system logs -l app.kubernetes.io/name=comity --tail=20")
		}).Should(And(ContainSubstring("importrecords.exchange.comity.dev"), ContainSubstring("CustomResourceDefinition")))
		Eventually(ctx, clusterB.restarts).WithArguments(ctx).Should(HaveLen(2))
		before := clusterB.restarts(ctx)
		Expect(before).To(HaveEach(BeZero()))
		Consistently(ctx, clusterB.restarts).WithArguments(ctx).WithTimeout(noRestart).WithPolling(time.Second).Should(Equal(before))
		clusterB.expectAnswers(ctx, hostOf(key), servicePort, pods...)
	})

	It("and once it is back, it goes on by itself", func(ctx SpecContext) {
		shell.run(ctx, "kubectl --context b apply --server-side --force-conflicts -f %s", file)
		clusterB.awaitComity(ctx)
		Expect(clusterB.restarts(ctx)).To(HaveEach(BeZero()))
		Expect(clusterA.patch(ctx, newServer(key.Namespace, key.Name, 1), replicas(2))).To(Succeed())
		clusterB.expectAnswers(ctx, hostOf(key), servicePort, clusterA.awaitPods(ctx, key.Namespace, key.Name, 2)...)
		clusterA.expectAvailable(ctx, key, metav1.ConditionTrue, model.ReasonImported)
	})
})

// restarts are those of Comity's replicas, by Pod; of Pods that go, none.
func (m *member) restarts(ctx context.Context) map[string]int {
	GinkgoHelper()
	var list corev1.PodList
	Expect(m.client.List(ctx, &list, client.InNamespace(install.Namespace), client.MatchingLabels{"app.kubernetes.io/name": "comity"})).To(Succeed())
	found := map[string]int{}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp != nil {
			continue
		}
		for _, c := range pod.Status.ContainerStatuses {
			found[pod.Name] += int(c.RestartCount)
		}
	}
	return found
}
