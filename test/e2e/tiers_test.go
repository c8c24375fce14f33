// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// What routes here is stock kube-proxy, in a by nftables and in b by iptables.
// That the other cluster answers once the local Pods are gone is also a spec of FAULT 20.
var _ = Describe("A Service with tiers", Ordered, beyond(), func() {
	key := types.NamespacedName{Namespace: "tiers", Name: "local"}
	var pods map[string][]string // by cluster id

	// group labels the Peer of the other cluster in m; empty removes the label.
	group := func(ctx context.Context, m *member, value string) {
		GinkgoHelper()
		peer := &exchangev1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: m.other().ID()}}
		label := "null"
		if value != "" {
			label = fmt.Sprintf("%q", value)
		}
		Expect(m.patch(ctx, peer, fmt.Sprintf(`{"metadata": {"labels": {"example.com/group": %s}}}`, label))).To(Succeed())
		step("in %s: Peer %s is in group %q", m.ID(), peer.Name, value)
	}
	sources := func(ctx context.Context, m *member) (from []string) {
		for _, s := range m.listSlices(ctx, key, client.MatchingLabels{model.LabelServiceName: key.Name}) {
			from = append(from, s.Labels[model.LabelSourceCluster])
		}
		slices.Sort(from)
		return slices.Compact(from)
	}

	BeforeAll(func(ctx SpecContext) {
		for _, m := range bothMembers() {
			config, err := m.typed.CoreV1().ConfigMaps("kube-system").Get(ctx, "kube-proxy", metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(config.Data["config.conf"]).To(MatchRegexp(`(?m)^mode: "?%s"?$`, proxyModes()[m.ID()]))
			DeferCleanup(group, m, "")
			group(ctx, m, "near")
		}
		pods = exportFromBoth(ctx, key, 2, map[string]string{model.AnnotationTiers: "self; example.com/group=near; none"}, func(*corev1.ServiceSpec) {})
	})

	It("is answered in the cluster that asks, every time", func(ctx SpecContext) {
		for _, m := range bothMembers() {
			m.expectAnswers(ctx, hostOf(key), servicePort, pods[m.ID()]...)
			for _, target := range m.targets(ctx, hostOf(key)) {
				m.expectOnly(ctx, target, pods[m.ID()]...)
			}
		}
	})

	It("is answered by the second tier while the first has no endpoint, and again by the first", func(ctx SpecContext) {
		for _, m := range bothMembers() {
			server := newServer(key.Namespace, key.Name, 2)
			Expect(m.patch(ctx, server.DeepCopy(), replicas(0))).To(Succeed())
			m.awaitPods(ctx, key.Namespace, key.Name, 0)
			m.expectAnswers(ctx, hostOf(key), servicePort, pods[m.other().ID()]...)
			for _, target := range m.targets(ctx, hostOf(key)) {
				m.expectOnly(ctx, target, pods[m.other().ID()]...)
			}

			Expect(m.patch(ctx, server.DeepCopy(), replicas(2))).To(Succeed())
			pods[m.ID()] = m.awaitPods(ctx, key.Namespace, key.Name, 2)
			m.expectAnswers(ctx, hostOf(key), servicePort, pods[m.ID()]...)
		}
	})

	// The annotation of the ServiceImport comes before that of the export.
	It("prefers the other cluster where the ServiceImport says so", func(ctx SpecContext) {
		imported := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		Expect(clusterA.patch(ctx, imported, fmt.Sprintf(`{"metadata": {"annotations": {%q: "example.com/group=near; self; none"}}}`, model.AnnotationTiers))).To(Succeed())
		clusterA.expectAnswers(ctx, hostOf(key), servicePort, pods["b"]...)
		clusterB.expectAnswers(ctx, hostOf(key), servicePort, pods["b"]...)
	})

	It("has no endpoint of a cluster that is in no tier", func(ctx SpecContext) {
		for _, m := range bothMembers() {
			group(ctx, m, "far")
			Eventually(ctx, sources).WithArguments(ctx, m).Should(Equal([]string{m.ID()}))
			m.expectAnswers(ctx, hostOf(key), servicePort, pods[m.ID()]...)
		}
	})
})
