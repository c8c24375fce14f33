// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package spec

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/test/envtest/clusterset"
)

var _ = Describe("what a Service says of traffic", func() {
	It("is said by derived Service and ServiceImport in every cluster, and follows", func(ctx SpecContext) {
		ns := namespace(ctx, "fields")
		s := clusterset.Service(ns, "web")
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](77)}}
		s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
		s.Spec.TrafficDistribution = ptr.To(corev1.ServiceTrafficDistributionPreferClose)
		b.Create(ctx, s, clusterset.Endpoints(ns, "web", "web-x", 8080, "10.92.0.1"))
		export := clusterset.Export(ns, "web")
		export.Spec.ExportedLabels = map[string]string{"team": "shop"}
		export.Spec.ExportedAnnotations = map[string]string{"example.com/owner": "alice"}
		b.Create(ctx, export)
		check := func(affinity corev1.ServiceAffinity, config *corev1.SessionAffinityConfig, policy corev1.ServiceInternalTrafficPolicy, distribution *string, team string) {
			GinkgoHelper()
			for _, m := range all() {
				Eventually(ctx, func(g Gomega) {
					imported := clusterset.Import(ns, "web")
					g.Expect(m.Client.Get(ctx, key(imported), imported)).To(Succeed())
					g.Expect(imported.Annotations).To(HaveKey("multicluster.kubernetes.io/derived-service"))
					derived := &corev1.Service{}
					derived.Namespace, derived.Name = ns, imported.Annotations["multicluster.kubernetes.io/derived-service"]
					g.Expect(m.Client.Get(ctx, key(derived), derived)).To(Succeed())
					g.Expect(derived.Spec.SessionAffinity).To(Equal(affinity))
					g.Expect(derived.Spec.SessionAffinityConfig).To(Equal(config))
					g.Expect(derived.Spec.InternalTrafficPolicy).To(HaveValue(Equal(policy)))
					g.Expect(derived.Spec.TrafficDistribution).To(Equal(distribution))
					g.Expect(imported.Spec.SessionAffinity).To(Equal(affinity))
					g.Expect(imported.Spec.SessionAffinityConfig).To(Equal(config))
					g.Expect(imported.Spec.InternalTrafficPolicy).To(HaveValue(Equal(policy)))
					g.Expect(imported.Spec.TrafficDistribution).To(Equal(distribution))
					g.Expect(imported.Labels).To(HaveKeyWithValue("team", team))
					g.Expect(imported.Annotations).To(HaveKeyWithValue("example.com/owner", "alice"))
				}).Should(Succeed(), "in %s", m.ID())
			}
		}
		check(s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig, *s.Spec.InternalTrafficPolicy, s.Spec.TrafficDistribution, "shop")

		By("changing all of it")
		clusterset.Change(ctx, b, clusterset.Service(ns, "web"), func(s *corev1.Service) {
			s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
			s.Spec.InternalTrafficPolicy, s.Spec.TrafficDistribution = ptr.To(corev1.ServiceInternalTrafficPolicyCluster), nil
		})
		clusterset.Change(ctx, b, clusterset.Export(ns, "web"), func(e *mcsv1beta1.ServiceExport) { e.Spec.ExportedLabels["team"] = "store" })
		check(corev1.ServiceAffinityNone, nil, corev1.ServiceInternalTrafficPolicyCluster, nil, "store")
	})
})
