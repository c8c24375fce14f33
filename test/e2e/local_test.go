// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"maps"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
)

// What routes here is stock kube-proxy, in a by nftables and in b by iptables. The
// local endpoints of a derived Service are written by the local Comity, as the
// others are: it has to run for them to go, and nobody else has.
var _ = Describe("A Service with comity.dev/prefer: local", Ordered, beyond(), func() {
	key := types.NamespacedName{Namespace: "prefer", Name: "local"}
	const requests = 100
	var pods map[string][]string // by cluster id

	BeforeAll(func(ctx SpecContext) {
		for _, m := range bothMembers() {
			config, err := m.typed.CoreV1().ConfigMaps("kube-system").Get(ctx, "kube-proxy", metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(config.Data["config.conf"]).To(MatchRegexp(`(?m)^mode: "?%s"?$`, proxyModes()[m.ID()]))
		}
		pods = exportFromBoth(ctx, key, 2, map[string]string{model.AnnotationPrefer: model.PreferLocal}, func(*corev1.ServiceSpec) {})
	})

	It("is answered in the cluster that asks, every time", func(ctx SpecContext) {
		for _, m := range bothMembers() {
			m.expectAnswers(ctx, hostOf(key), servicePort, pods[m.ID()]...)
			for _, target := range m.targets(ctx, hostOf(key)) {
				Expect(m.ask(ctx, target, servicePort, requests)).To(ConsistOf(pods[m.ID()]))
				step("from %s: %d of %d requests to %s stayed there", m.ID(), requests, requests, target)
			}
		}
	})

	It("is answered by the other cluster while the local Pods are gone, and Comity runs in a alone and writes nothing of b", func(ctx SpecContext) {
		DeferCleanup(func(ctx SpecContext) { clusterB.scaleComity(ctx, 2) })
		clusterB.scaleComity(ctx, 0)
		ofB := clusterA.settledSlicesFrom(ctx, key, clusterB, 2)
		server := newServer(key.Namespace, key.Name, 2)

		Expect(clusterA.patch(ctx, server.DeepCopy(), replicas(0))).To(Succeed())
		clusterA.awaitPods(ctx, key.Namespace, key.Name, 0)
		clusterA.expectAnswers(ctx, hostOf(key), servicePort, pods["b"]...)
		for _, target := range clusterA.targets(ctx, hostOf(key)) {
			Expect(clusterA.ask(ctx, target, servicePort, requests)).To(ConsistOf(pods["b"]))
			step("from a: %d of %d requests to %s went to b", requests, requests, target)
		}

		Expect(clusterA.patch(ctx, server.DeepCopy(), replicas(2))).To(Succeed())
		pods["a"] = clusterA.awaitPods(ctx, key.Namespace, key.Name, 2)
		clusterA.expectAnswers(ctx, hostOf(key), servicePort, pods["a"]...)
		Expect(clusterA.slicesFrom(ctx, key, "b")).To(Equal(ofB), "slices from b were as good as before")
		step("in a: %v from b were not written", slices.Collect(maps.Keys(ofB)))
	})
})
