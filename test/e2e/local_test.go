// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
)

// What routes here is stock kube-proxy, in a by nftables and in b by iptables.
// That the other cluster answers once the local Pods are gone is a spec of FAULT 20.
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
})
