// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
	"github.com/comity-mcs/comity/test/gitops"
)

var _ = Describe("what Argo CD, Flux and Helm track an object by", func() {
	It("is on no object that Comity writes, and the export says so", func(ctx SpecContext) {
		ns := namespace(ctx, "tracked")
		tracked := map[string]string{
			"app.kubernetes.io/instance": "shop", "argocd.argoproj.io/instance": "shop", "kustomize.toolkit.fluxcd.io/name": "shop",
			"helm.toolkit.fluxcd.io/name": "shop", "helm.sh/chart": "shop", "applyset.kubernetes.io/part-of": "shop",
		}
		notes := map[string]string{"argocd.argoproj.io/tracking-id": "shop", "meta.helm.sh/release-name": "shop", "kubectl.kubernetes.io/last-applied-configuration": "shop"}
		with := func(own map[string]string) map[string]string {
			out := map[string]string{"team": "shop"}
			for _, m := range []map[string]string{tracked, own} {
				for key, value := range m {
					out[key] = value
				}
			}
			return out
		}
		service, slice, export := clusterset.Service(ns, "web"), clusterset.Endpoints(ns, "web", "web-x", 8080, "10.91.0.1"), clusterset.Export(ns, "web")
		for _, o := range []client.Object{service, slice, export} { // the slice has the labels of its Service, as Kubernetes copies them
			o.SetLabels(with(o.GetLabels()))
			o.SetAnnotations(notes)
		}
		export.Spec.ExportedLabels, export.Spec.ExportedAnnotations = with(nil), notes
		a.Create(ctx, service, slice, export)

		checkAll := func(m *clusterset.Member, want int, where client.ListOption, lists ...client.ObjectList) {
			GinkgoHelper()
			Eventually(ctx, func(g Gomega) {
				found := 0
				for _, list := range lists {
					g.Expect(m.Client.List(ctx, list, where)).To(Succeed())
					items, err := meta.ExtractList(list)
					g.Expect(err).NotTo(HaveOccurred())
					for _, item := range items {
						o := item.(client.Object)
						record, isRecord := o.(*exchangev1alpha1.ExportRecord)
						if !model.IsManaged(o) || isRecord && record.Spec.Service.Namespace != ns {
							continue
						}
						found++
						for key := range tracked {
							g.Expect(o.GetLabels()).NotTo(HaveKey(key), "%s %s", m.ID(), o.GetName())
						}
						for key := range notes {
							g.Expect(o.GetAnnotations()).NotTo(HaveKey(key), "%s %s", m.ID(), o.GetName())
						}
						if isRecord {
							g.Expect(record.Spec.Labels).To(Equal(map[string]string{"team": "shop"}))
							g.Expect(record.Spec.Annotations).To(BeEmpty())
						}
					}
				}
				g.Expect(found).To(Equal(want))
			}).Should(Succeed(), "in %s", m.ID())
		}
		for _, m := range all() { // the derived Service, the ServiceImport and one slice
			checkAll(m, 3, client.InNamespace(ns), &corev1.ServiceList{}, &mcsv1beta1.ServiceImportList{}, &discoveryv1.EndpointSliceList{})
			Eventually(ctx, func(g Gomega) {
				imported := clusterset.Import(ns, "web")
				g.Expect(m.Client.Get(ctx, key(imported), imported)).To(Succeed())
				g.Expect(imported.Labels).To(HaveKeyWithValue("team", "shop"))
				g.Expect(m.Slices(ctx, ns, "web")).To(ConsistOf(HaveField("Labels", HaveKeyWithValue("team", "shop"))))
			}).Should(Succeed(), "in %s", m.ID())
		}
		checkAll(a, 1, client.InNamespace(model.ExchangeNamespace("a")), &exchangev1alpha1.ExportRecordList{})
		Eventually(ctx, func(g Gomega) {
			var slices discoveryv1.EndpointSliceList
			g.Expect(a.Client.List(ctx, &slices, client.InNamespace(model.ExchangeNamespace("a")), client.MatchingLabels{model.LabelExportNamespace: ns})).To(Succeed())
			g.Expect(slices.Items).To(HaveLen(1))
			g.Expect(slices.Items[0].Labels).To(And(HaveKeyWithValue("team", "shop"), Not(HaveKey("app.kubernetes.io/instance"))))
		}).Should(Succeed())

		By("saying so, though the export works")
		left := And(ContainSubstring(`spec.exportedLabels: "app.kubernetes.io/instance", "applyset.kubernetes.io/part-of", "argocd.argoproj.io/instance"`),
			ContainSubstring(`spec.exportedAnnotations: "argocd.argoproj.io/tracking-id"`))
		Eventually(ctx, a.ExportCondition(ns, "web", "Ready")).Should(And(HavePrefix("True/Exported: "), left))
		Eventually(ctx, a.ImportCondition(ns, "web", "Ready")).Should(And(HavePrefix("True/Ready: "), left))
		Eventually(ctx, b.ImportCondition(ns, "web", "Ready")).Should(And(HavePrefix("True/Ready: "), Not(ContainSubstring("exportedLabels"))))
	})

	It("is healthy where it works, and says what it waits for", func(ctx SpecContext) {
		ns := namespace(ctx, "health")
		export := clusterset.Export(ns, "web")
		a.Create(ctx, export)
		health := func(o client.Object) func(Gomega, context.Context) string {
			return func(g Gomega, ctx context.Context) string {
				kind, err := a.Client.GroupVersionKindFor(o)
				g.Expect(err).NotTo(HaveOccurred())
				read := &unstructured.Unstructured{}
				read.SetGroupVersionKind(kind)
				g.Expect(a.Client.Get(ctx, key(o), read)).To(Succeed())
				h, err := gitops.Of(read)
				g.Expect(err).NotTo(HaveOccurred())
				return fmt.Sprintf("%s %s: %s", h.Argo, h.Flux, h.Message)
			}
		}
		Eventually(ctx, health(export)).Should(Equal("Progressing InProgress: Service " + ns + "/web does not exist in this cluster; create it or delete this ServiceExport"))
		a.Create(ctx, clusterset.Service(ns, "web"), clusterset.Endpoints(ns, "web", "web-x", 8080, "10.91.0.1"))
		Eventually(ctx, health(export)).Should(HavePrefix("Healthy Current: published for "))
		Eventually(ctx, health(clusterset.Import(ns, "web"))).Should(HavePrefix("Healthy Current: web." + ns + ".svc.clusterset.local resolves to "))
		Eventually(ctx, health(clusterset.Peer("b"))).Should(HavePrefix("Healthy Current: the heartbeat of the cluster is seen"))

		By("denying it")
		policy := &policyv1alpha1.ExportPolicy{ObjectMeta: metav1.ObjectMeta{Name: "closed"}, Spec: policyv1alpha1.ExportPolicySpec{
			Rego: "package comity.policies.closed\n\ndeny contains {\"msg\": \"closed\"} if input.object.metadata.namespace == \"" + ns + "\"\n",
		}}
		a.Create(ctx, policy)
		DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(a.Client.Delete(ctx, policy))).To(Succeed()) })
		Eventually(ctx, health(policy)).Should(HavePrefix("Healthy Current: 1/1 replicas enforce the policy as it is stored"))
		Eventually(ctx, health(export)).Should(And(HavePrefix("Degraded Failed: policy forbids this export"), ContainSubstring("closed")))
	})
})
