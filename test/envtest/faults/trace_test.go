// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"os/exec"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
	"github.com/comity-mcs/comity/test/install"
)

// reads is how often what a command says is awaited: each time, it reads both clusters.
const reads = 500 * time.Millisecond

// traced is the cause that the command finds for the way from a to b.
func traced(namespace string) func(Gomega, context.Context) string {
	return func(_ Gomega, ctx context.Context) string {
		return cause(trace(ctx, namespace+"/web", "--from", "a", "--to", "b"))
	}
}

// broken says whether a step of the way from a to b is.
func broken(namespace string) func(Gomega, context.Context) bool {
	return func(_ Gomega, ctx context.Context) bool {
		return trace(ctx, namespace+"/web", "--from", "a", "--to", "b").Broken
	}
}

// `kubectl comity trace` names each fault as the first cause, and the command that it prints fixes it.
var _ = Describe("trace", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx SpecContext) {
		healthy(ctx)
		useContexts(ctx)
		for _, m := range both() {
			leads(ctx, m)
			DeferCleanup(func(ctx SpecContext) {
				Expect(m.Client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(install.Namespace), client.GracePeriodSeconds(0))).To(Succeed())
			}, NodeTimeout(time.Minute))
			serveZone(ctx, m)
		}
	}, NodeTimeout(2*time.Minute))

	It("says that no step is broken, with all that one cluster knows", func(ctx SpecContext) {
		const ns = "trace-healthy"
		exported(ctx, ns)
		Eventually(ctx, traced(ns)).WithPolling(reads).Should(BeEmpty())
		code, out, errs := plugin(ctx, "trace", ns+"/web", "a", "b", "--no-connect")
		Expect(code).To(BeZero())
		Expect(errs).To(BeEmpty())
		Expect(out).To(And(ContainSubstring("from cluster a\n"), ContainSubstring("  to cluster b\n"), ContainSubstring("Source: Published, 1 of 1"), ContainSubstring("No step is broken.")))
		Expect(trace(ctx, ns+"/web", "b").Broken).To(BeFalse())
		Eventually(ctx, func() string { // b reports the import after it is there
			_, out, _ := plugin(ctx, "trace", ns+"/web", "a", "--no-connect")
			return out
		}).Should(ContainSubstring("not read  Import: cluster b was not read; name its context, too; cluster a says: Available True (Imported)"))
		_, out, _ = plugin(ctx, "trace", ns+"/web", "b", "--no-connect")
		Expect(out).To(And(ContainSubstring("not read  Export: cluster a was not read"), MatchRegexp(`ok +EndpointSlices: 2 of 2 are ready`)))
	}, SpecTimeout(2*time.Minute))

	DescribeTable("names the fault, and prints what fixes it", func(ctx SpecContext, ns, want string, plant func(context.Context, string), isFixed bool, after func(context.Context)) {
		exported(ctx, ns)
		Eventually(ctx, traced(ns)).WithPolling(reads).Should(BeEmpty())
		plant(ctx, ns)
		Eventually(ctx, traced(ns)).WithPolling(reads).Should(Equal(want))
		report := trace(ctx, ns+"/web", "a", "b")
		Expect(report.Cause.Docs).To(HavePrefix("https://"))
		if isFixed {
			fix(ctx, report)
		}
		if after != nil { // what no command can, or who does not run here would
			after(ctx)
		}
		Eventually(ctx, broken(ns)).WithPolling(reads).Should(BeFalse())
	},
		Entry("a scope that leaves b out", SpecTimeout(3*time.Minute), "trace-scope", "ExportRecord in a: OutOfScope", func(ctx context.Context, ns string) {
			c := clusterset.Peer("c") // which a scope may name
			c.Spec = exchangev1alpha1.PeerSpec{ClusterSet: "test", ClusterUID: "c", KubeconfigSecret: "peer-c"}
			space := clusterset.Namespace(model.ScopedExchangeNamespace("a", "c"))
			space.Labels = map[string]string{model.LabelExchangeFrom: "a", model.LabelExchangeTo: "c"}
			a.Create(ctx, c, space, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: space.Name, Name: "comity"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
				Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "comity-system", Name: "comity"}},
			})
			Eventually(ctx, func() error { // the policy knows the Peer
				return exec.CommandContext(ctx, "kubectl", "--context", "a", "-n", ns, "annotate", "serviceexport", "web", "comity.dev/export-to=c").Run()
			}).Should(Succeed())
		}, true, func(ctx context.Context) { Expect(a.Client.Delete(ctx, clusterset.Peer("c"))).To(Succeed()) }),
		Entry("a policy that denies", SpecTimeout(3*time.Minute), "trace-policy", "Policies in a: PolicyDenied", func(ctx context.Context, _ string) {
			a.Create(ctx, &policyv1alpha1.ExportPolicy{ObjectMeta: metav1.ObjectMeta{Name: "traced"}, Spec: policyv1alpha1.ExportPolicySpec{
				Rego: "package comity.policies.traced\n\ndeny contains {\"msg\": \"no\", \"field\": \"metadata.name\", \"remedy\": \"ask\"} if input.object.metadata.namespace == \"trace-policy\"\n",
			}})
		}, false, func(ctx context.Context) {
			Expect(a.Client.Delete(ctx, &policyv1alpha1.ExportPolicy{ObjectMeta: metav1.ObjectMeta{Name: "traced"}})).To(Succeed())
		}),
		Entry("a foreign ServiceImport", SpecTimeout(3*time.Minute), "trace-foreign", "Source in b: ForeignImport", func(ctx context.Context, ns string) {
			Expect(a.Client.Delete(ctx, clusterset.Export(ns, "web"))).To(Succeed())
			Eventually(ctx, b.Backends(ns, "web")).Should(BeEmpty())
			Eventually(ctx, func() error {
				return b.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "web"}, clusterset.Import("", ""))
			}).ShouldNot(Succeed())
			foreign := clusterset.Import(ns, "web")
			foreign.Spec = mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Name: "http", Port: 80}}}
			b.Create(ctx, foreign)
			a.Create(ctx, clusterset.Export(ns, "web"))
		}, true, nil),
		Entry("CoreDNS without the zone", SpecTimeout(3*time.Minute), "trace-coredns", "CoreDNS in b: ZoneMissing", func(ctx context.Context, _ string) {
			clusterset.Change(ctx, b, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"}}, func(c *corev1.ConfigMap) {
				c.Data["Corefile"] = ".:53 {\n    kubernetes cluster.local {\n    }\n}\n"
			})
			d := clusterset.Get(ctx, b, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"}})
			d.Status.ObservedGeneration = d.Generation + 1 // as its controller would say after the restart
			Expect(b.Client.Status().Update(ctx, d)).To(Succeed())
		}, true, nil),
		Entry("a stopped agent", SpecTimeout(3*time.Minute), "trace-stopped", "Agent in b: NotRunning", func(ctx context.Context, _ string) {
			var pods corev1.PodList
			Expect(b.Client.List(ctx, &pods, client.InNamespace("comity-system"))).To(Succeed())
			Expect(b.Client.Delete(ctx, &pods.Items[0], client.GracePeriodSeconds(0))).To(Succeed())
		}, true, func(ctx context.Context) { leads(ctx, b) }),
	)

	It("finds a missing namespace, and a name that is taken", func(ctx SpecContext) {
		const ns = "trace-absent"
		a.Create(ctx, clusterset.Namespace(ns), clusterset.Service(ns, "web"), clusterset.Endpoints(ns, "web", "web-x", 8080, "10.91.0.1"), clusterset.Export(ns, "web"))
		Eventually(ctx, traced(ns)).WithPolling(reads).Should(Equal("Source in b: NamespaceMissing"))
		fix(ctx, trace(ctx, ns+"/web", "a", "b"))
		Eventually(ctx, traced(ns)).WithPolling(reads).Should(BeEmpty())

		By("taking both names")
		Expect(a.Client.Delete(ctx, clusterset.Export(ns, "web"))).To(Succeed())
		Eventually(ctx, func() error {
			return b.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: model.DerivedName("web")}, &corev1.Service{})
		}).ShouldNot(Succeed())
		b.Create(ctx, clusterset.Service(ns, model.DerivedName("web")), clusterset.Service(ns, model.AlternateDerivedName("web")))
		a.Create(ctx, clusterset.Export(ns, "web"))
		Eventually(ctx, traced(ns)).WithPolling(reads).Should(Equal("ServiceImport in b: NameTaken"))
		fix(ctx, trace(ctx, ns+"/web", "a", "b"))
		Eventually(ctx, traced(ns)).WithPolling(reads).Should(BeEmpty())
	}, SpecTimeout(3*time.Minute))

	It("finds a held takeover", func(ctx SpecContext) {
		const ns = "trace-takeover"
		for _, m := range both() {
			m.Create(ctx, clusterset.Namespace(ns))
		}
		a.Create(ctx, clusterset.Export(ns, "web")) // the older one, without a Service
		time.Sleep(time.Second)                     // which timestamps tell apart
		b.Create(ctx, clusterset.Service(ns, "web"), clusterset.Endpoints(ns, "web", "web-x", 8080, "10.92.0.1"), clusterset.Export(ns, "web"))
		Eventually(ctx, b.Backends(ns, "web")).Should(HaveLen(1))
		By("letting the list of b have formed long ago, so that no export takes the place of its age any more")
		derived := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: model.DerivedName("web")}}
		clusterset.Change(ctx, b, derived, func(s *corev1.Service) {
			list, err := model.ParseList(s.Annotations[model.AnnotationList])
			Expect(err).NotTo(HaveOccurred())
			list.Formed = list.Formed.Add(-time.Hour)
			s.Annotations[model.AnnotationList] = list.String()
		})
		service := clusterset.Service(ns, "web")
		service.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		a.Create(ctx, service, clusterset.Endpoints(ns, "web", "web-x", 8080, "10.91.0.1"))
		Eventually(ctx, traced(ns)).WithPolling(reads).Should(Equal("ServiceImport in b: TakeoverHeld"))
		fix(ctx, trace(ctx, ns+"/web", "--from", "a", "--to", "b"))
		Eventually(ctx, broken(ns)).WithPolling(reads).Should(BeFalse())
	}, SpecTimeout(2*time.Minute))
})
