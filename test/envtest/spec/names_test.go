// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"fmt"
	"strings"

	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/test/envtest/clusterset"
)

var _ = Describe("names", func() {
	It("of the Pods of a headless StatefulSet resolve in every cluster, with ports", func(ctx SpecContext) {
		ns := namespace(ctx, "stateful")
		service := selecting(ns, "db", ipv4)
		service.Spec.ClusterIP = corev1.ClusterIPNone
		b.Create(ctx, service, &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "db"},
			Spec: appsv1.StatefulSetSpec{
				Replicas: ptr.To[int32](2), ServiceName: "db", PodManagementPolicy: appsv1.ParallelPodManagement,
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "db"}}, Spec: pod(ns, "db", "").Spec},
			},
		}, clusterset.Export(ns, "db"))
		addresses(ctx, b, ns, "db", 2)
		host := hostOf(ns, "db")
		for _, m := range all() {
			Eventually(ctx, m.ImportCondition(ns, "db", "Ready")).Should(HavePrefix("True/"), "in %s", m.ID())
			Expect(clusterset.Get(ctx, m, clusterset.Import(ns, "db")).Spec.Type).To(BeEquivalentTo("Headless"))
			for i := range 2 {
				one := clusterset.Get(ctx, b, pod(ns, "db", fmt.Sprintf("db-%d", i)))
				Eventually(ctx, lookup(m, fmt.Sprintf("db-%d.b.%s", i, host), dns.TypeA)).Should(Equal([]string{one.Status.PodIPs[0].IP}), "in %s", m.ID())
			}
			Eventually(ctx, lookup(m, host, dns.TypeA)).Should(HaveLen(2))
			Eventually(ctx, lookup(m, "_http._tcp."+host, dns.TypeSRV)).Should(Equal([]string{"80 db-0.b." + host, "80 db-1.b." + host}))
			Expect(lookup(m, "db-2.b."+host, dns.TypeA)(ctx)).To(Equal([]string{"NXDOMAIN"}))
			Expect(lookup(m, "db-0.a."+host, dns.TypeA)(ctx)).To(Equal([]string{"NXDOMAIN"}))
		}
	})

	It("of endpoints that are not addresses do not travel, and those made by hand do", func(ctx SpecContext) {
		ns := namespace(ctx, "manual")
		named := clusterset.Endpoints(ns, "web", "web-named", 8080, "elsewhere.example.com")
		named.AddressType = discoveryv1.AddressTypeFQDN
		b.Create(ctx, clusterset.Service(ns, "web"), clusterset.Endpoints(ns, "web", "web-by-hand", 8080, "10.90.0.1", "10.90.0.2"),
			endpoints6(ns, "web", "web-six", "fd00:90::1"), named, clusterset.Export(ns, "web"))
		for _, m := range all() {
			Eventually(ctx, m.Backends(ns, "web")).Should(Equal([]string{"b/10.90.0.1", "b/10.90.0.2", "b/fd00:90::1"}), "in %s", m.ID())
			for _, s := range m.Slices(ctx, ns, "web") {
				Expect(s.AddressType).NotTo(Equal(discoveryv1.AddressTypeFQDN))
			}
		}
	})

	It("of 63 characters work, from export to DNS", func(ctx SpecContext) {
		ns := namespace(ctx, strings.Repeat("n", 63))
		name := "s" + strings.Repeat("v", 62)
		b.Create(ctx, selecting(ns, name, ipv4), pod(ns, name, "web-1"), clusterset.Export(ns, name))
		ips := addresses(ctx, b, ns, name, 1)
		for _, m := range all() {
			Eventually(ctx, m.Backends(ns, name)).Should(Equal([]string{"b/" + ips[0]}), "in %s", m.ID())
			Eventually(ctx, m.ImportCondition(ns, name, "Ready")).Should(HavePrefix("True/"))
			Eventually(ctx, lookup(m, hostOf(ns, name), dns.TypeA)).Should(Equal(m.Derived(ctx, ns, name).Spec.ClusterIPs[:1]))
		}
		Eventually(ctx, b.ExportCondition(ns, name, "Available")).Should(HavePrefix("True/Imported: "))
	})
})
