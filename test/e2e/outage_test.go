// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/test/install"
)

var _ = Describe("FAULT 20: while no replica of Comity runs in b", Ordered, Serial, beyond(), func() {
	const namespace = "outage"
	named := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: namespace, Name: name} }
	kept, withdrawn, own, turned := named("kept"), named("withdrawn"), named("own"), named("turned")

	BeforeAll(func(ctx SpecContext) {
		for _, m := range bothMembers() {
			m.create(ctx, newNamespace(namespace))
		}
		for key, m := range map[types.NamespacedName]*member{kept: clusterA, withdrawn: clusterA, own: clusterB} {
			m.create(ctx, newServer(namespace, key.Name, 1), newService(namespace, key.Name, corev1.ServiceTypeClusterIP), newExport(namespace, key.Name))
		}
		for key, m := range map[types.NamespacedName]*member{kept: clusterA, withdrawn: clusterA, own: clusterB} {
			m.other().expectImported(ctx, key, mcsv1beta1.ClusterSetIP, m.ID())
			m.other().expectAnswers(ctx, hostOf(key), servicePort, m.awaitPods(ctx, namespace, key.Name, 1)...)
		}
		clusterB.create(ctx, newService(namespace, turned.Name, corev1.ServiceTypeClusterIP), newExport(namespace, turned.Name))
		clusterA.expectImported(ctx, turned, mcsv1beta1.ClusterSetIP, "b")
		// Whatever happens, the specs that follow find it running.
		DeferCleanup(func(ctx SpecContext) { clusterB.scaleComity(ctx, 2) })
		clusterB.scaleComity(ctx, 0)
	})

	It("what was imported goes on working, exports are refused, and deletions pass", func(ctx SpecContext) {
		for _, key := range []types.NamespacedName{kept, withdrawn} {
			clusterB.expectAnswers(ctx, hostOf(key), servicePort, clusterA.awaitPods(ctx, namespace, key.Name, 1)...)
		}
		out := shell.refused(ctx, "%s", clusterB.applyCommand(exportIn("v1beta1", namespace, "new", nil, nil)))
		Expect(out).To(ContainSubstring("failed calling webhook"), "the webhook fails closed")
		Expect(clusterB.client.Delete(ctx, newExport(namespace, own.Name))).To(Succeed())
	})

	It("everything that is no export is created, changed and deleted as ever", func(ctx SpecContext) {
		shell.run(ctx, "kubectl --context b create namespace outage-other")
		shell.run(ctx, `kubectl --context b -n outage-other create configmap settings --from-literal=a=b
			kubectl --context b -n outage-other create service externalname far --external-name payments.example.com
			kubectl --context b -n outage label service %s team=web
			kubectl --context b -n outage patch service %s --type=merge -p '{"spec": {"ports": [{"port": 81, "targetPort": 8080}]}}'
			kubectl --context b -n outage scale deployment %s --replicas=0
			kubectl --context b delete namespace outage-other`, own.Name, own.Name, own.Name)
		refusal := shell.refused(ctx, `kubectl --context b -n outage patch service %s --type=merge -p '{"spec": {"type": "ExternalName", "externalName": "payments.example.com"}}'`, turned.Name)
		Expect(refusal).To(ContainSubstring("failed calling webhook"))
	})

	It("what a changes meanwhile arrives once it runs again", func(ctx SpecContext) {
		Expect(clusterA.patch(ctx, newServer(namespace, kept.Name, 1), replicas(2))).To(Succeed())
		pods := clusterA.awaitPods(ctx, namespace, kept.Name, 2)
		Expect(clusterA.client.Delete(ctx, newExport(namespace, withdrawn.Name))).To(Succeed())
		clusterA.expectNoTrace(ctx, withdrawn)
		Expect(clusterB.traces(ctx, withdrawn)).NotTo(BeEmpty(), "nobody is there to remove it")

		// A Service that is made again passes no webhook, whatever its type.
		Expect(clusterB.client.Delete(ctx, newService(namespace, turned.Name, corev1.ServiceTypeClusterIP))).To(Succeed())
		clusterB.create(ctx, newExternal(turned))

		clusterB.scaleComity(ctx, 2)
		back := time.Now()
		Eventually(ctx, clusterB.admitted).WithArguments(ctx, turned).WithTimeout(audited).Should(Equal(metav1.ConditionFalse))
		step("in b: what slipped by is found %.0fs after Comity is back", time.Since(back).Seconds())
		clusterB.expectDescribed(ctx, "serviceexport", turned,
			reads("Admitted", "False", "PolicyDenied", And(ContainSubstring("[no-external-name]"), ContainSubstring("Remedy: "))))
		clusterA.expectAddressAlone(ctx, turned)
		clusterB.expectAnswers(ctx, hostOf(kept), servicePort, pods...)
		clusterB.expectNoTrace(ctx, withdrawn)
		for _, m := range bothMembers() {
			m.expectNoTrace(ctx, own)
		}
	})
})

// scaleComity runs count replicas of Comity and waits until no more and no fewer are there.
func (m *member) scaleComity(ctx context.Context, count int) {
	GinkgoHelper()
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: "comity"}}
	Expect(m.patch(ctx, deployment, replicas(count))).To(Succeed())
	Eventually(ctx, func(g Gomega) {
		var pods corev1.PodList
		g.Expect(m.client.List(ctx, &pods, client.InNamespace(install.Namespace))).To(Succeed())
		g.Expect(pods.Items).To(HaveLen(count))
	}).Should(Succeed())
	m.awaitComity(ctx)
	step("in %s: %d replicas of Comity", m.ID(), count)
}

// awaitComity waits until all replicas that should run are ready and judge
// exports: kube-proxy sends nobody there for a moment after they are.
func (m *member) awaitComity(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		deployment, err := m.typed.AppsV1().Deployments(install.Namespace).Get(ctx, "comity", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(deployment.Status.ObservedGeneration).To(Equal(deployment.Generation))
		g.Expect(deployment.Status.ReadyReplicas).To(Equal(*deployment.Spec.Replicas))
		if *deployment.Spec.Replicas > 0 {
			g.Expect(m.client.Create(ctx, newExport("default", "probe"), client.DryRunAll)).To(Succeed())
		}
	}).Should(Succeed(), "Comity's replicas in cluster %s", m.ID())
}
