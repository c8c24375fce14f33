// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
)

func writeFile(path, text string) error { return os.WriteFile(path, []byte(text), 0o600) }

func clusterIP(namespace, name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

func externalName(namespace, name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"},
	}
}

// denial is a verdict that refuses everything.
var denial = decision.Verdict{Outcome: decision.Denied, Violations: []decision.Violation{{Policy: "all", Message: "nothing is exported."}}}

var _ = Describe("A ServiceExport", func() {
	for _, version := range versions {
		It("of an ExternalName Service is refused with policy, field and remedy, in "+version, func(ctx SpecContext) {
			namespace := newNamespace(ctx, nil)
			Expect(k8s.Create(ctx, externalName(namespace, "web"))).To(Succeed())
			// At once: the Service is younger than what any cache may hold.
			err := k8s.Create(ctx, export(version, namespace, "web"))
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
			lines := strings.Split(err.Error(), "\n")
			Expect(lines).To(HaveLen(2))
			Expect(lines[0]).To(Equal(fmt.Sprintf(
				`admission webhook "validate.serviceexport.comity.dev" denied the request: ServiceExport %s/web was refused by 1 policy:`, namespace)))
			Expect(lines[1]).To(And(
				HavePrefix("[no-external-name] metadata.name: "), ContainSubstring("ExternalName"), ContainSubstring("Remedy: Export a Service of type ClusterIP")))
		})

		It("may come before its Service, in "+version, func(ctx SpecContext) {
			Expect(k8s.Create(ctx, export(version, newNamespace(ctx, nil), "web"))).To(Succeed())
		})

		It("of any other Service is stored without a warning, in "+version, func(ctx SpecContext) {
			namespace := newNamespace(ctx, nil)
			Expect(k8s.Create(ctx, clusterIP(namespace, "web"))).To(Succeed())
			warnings.Take()
			Expect(k8s.Create(ctx, export(version, namespace, "web"))).To(Succeed())
			Expect(warnings.Take()).To(BeEmpty())
		})
	}

	It("is refused, with advice, while no policy can be asked", func(ctx SpecContext) {
		judges.Overrule(decision.Verdict{Outcome: decision.NotEvaluated, Problem: "no policies are loaded yet"})
		err := k8s.Create(ctx, export("v1beta1", newNamespace(ctx, nil), "web"))
		Expect(apierrors.IsServiceUnavailable(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(And(
			ContainSubstring("the policies could not be evaluated: no policies are loaded yet."), ContainSubstring("try again in a few seconds"))))
	})

	It("that a later policy forbids can be given finalizers, lose them and be deleted, but not changed", func(ctx SpecContext) {
		namespace := newNamespace(ctx, nil)
		Expect(k8s.Create(ctx, scoped("v1beta1", namespace, "web", "cluster-2"))).To(Succeed())
		judges.Overrule(denial)

		stored := storedExport(ctx, namespace, "web")
		stored.Finalizers = []string{"example.com/wait"}
		Expect(k8s.Update(ctx, stored)).To(Succeed())

		changed := stored.DeepCopy()
		changed.Spec.ExportedLabels = map[string]string{"a": "b"}
		Expect(apierrors.IsForbidden(k8s.Update(ctx, changed))).To(BeTrue())

		stored.Status.Conditions = []metav1.Condition{{
			Type: "Valid", Status: metav1.ConditionTrue, Reason: "Valid", LastTransitionTime: metav1.Now(),
		}}
		Expect(k8s.Status().Update(ctx, stored)).To(Succeed())

		Expect(k8s.Delete(ctx, stored)).To(Succeed())
		dying := storedExport(ctx, namespace, "web")
		dying.Finalizers = nil
		Expect(k8s.Update(ctx, dying)).To(Succeed())
		Eventually(func() bool {
			return apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(dying), &mcsv1beta1.ServiceExport{}))
		}).WithTimeout(10 * time.Second).Should(BeTrue())
	})

	It("with a label by which Argo CD finds what to delete is stored with a warning", func(ctx SpecContext) {
		namespace := newNamespace(ctx, nil)
		tracked := export("v1beta1", namespace, "web")
		tracked.Object["spec"] = map[string]any{"exportedLabels": map[string]any{"team": "shop", "app.kubernetes.io/instance": "shop"}}
		warnings.Take()
		Expect(k8s.Create(ctx, tracked)).To(Succeed())
		Expect(warnings.Take()).To(ConsistOf(And(HavePrefix("ServiceExport "+namespace+`/web, spec.exportedLabels: "app.kubernetes.io/instance": not exported`), Not(ContainSubstring("team")))))
	})

	It("can be deleted while no policy can be asked", func(ctx SpecContext) {
		namespace := newNamespace(ctx, nil)
		Expect(k8s.Create(ctx, export("v1beta1", namespace, "web"))).To(Succeed())
		judges.Overrule(decision.Verdict{})
		Expect(k8s.Delete(ctx, export("v1alpha1", namespace, "web"))).To(Succeed())
	})

	It("in an excluded namespace does not wait for Comity", func(ctx SpecContext) {
		judges.Overrule(denial)
		Expect(k8s.Create(ctx, export("v1beta1", "kube-system", "web"))).To(Succeed())
	})
})

var _ = Describe("A Service that turns ExternalName", func() {
	turn := func(service *corev1.Service) *corev1.Service {
		turned := service.DeepCopy()
		turned.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}
		return turned
	}

	It("is refused while it is exported, and passes once it is not", func(ctx SpecContext) {
		namespace := newNamespace(ctx, nil)
		service := clusterIP(namespace, "web")
		Expect(k8s.Create(ctx, service)).To(Succeed())
		exported := export("v1alpha1", namespace, "web")
		Expect(k8s.Create(ctx, exported)).To(Succeed())

		err := k8s.Update(ctx, turn(service))
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(And(
			ContainSubstring(fmt.Sprintf("Service %[1]s/web was refused by 1 policy, because ServiceExport %[1]s/web exports it:\n[no-external-name] spec.type: ", namespace)),
			ContainSubstring("Remedy: "))))

		Expect(k8s.Delete(ctx, exported)).To(Succeed())
		Expect(k8s.Update(ctx, turn(service))).To(Succeed())
	})

	It("passes when it was never exported, whatever the policies say", func(ctx SpecContext) {
		judges.Overrule(denial)
		service := clusterIP(newNamespace(ctx, nil), "web")
		Expect(k8s.Create(ctx, service)).To(Succeed())
		Expect(k8s.Update(ctx, turn(service))).To(Succeed())
	})

	It("is the only change of an exported Service that is judged", func(ctx SpecContext) {
		namespace := newNamespace(ctx, nil)
		service := clusterIP(namespace, "web")
		Expect(k8s.Create(ctx, service)).To(Succeed())
		Expect(k8s.Create(ctx, export("v1beta1", namespace, "web"))).To(Succeed())
		judges.Overrule(denial)
		service.Spec.Type = corev1.ServiceTypeNodePort
		Expect(k8s.Update(ctx, service)).To(Succeed())
		Expect(k8s.Delete(ctx, service)).To(Succeed())
	})
})

var _ = Describe("An ExportPolicy", func() {
	policy := func(rego string) *policyv1alpha1.ExportPolicy {
		return &policyv1alpha1.ExportPolicy{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: policyv1alpha1.ExportPolicySpec{Rego: rego}}
	}

	It("that does not compile is refused with the place", func(ctx SpecContext) {
		err := k8s.Create(ctx, policy("package comity.policies.mine\n\ndeny contains"))
		Expect(apierrors.IsBadRequest(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(And(ContainSubstring("ExportPolicy mine cannot be used:\nmine.rego:3:"), ContainSubstring("Remedy: "))))
	})

	It("that compiles is stored, and can be deleted", func(ctx SpecContext) {
		good := policy("# METADATA\n# custom:\n#   reason: Mine\npackage comity.policies.mine\n\ndeny contains {\"msg\": \"no\"} if false\n")
		Expect(k8s.Create(ctx, good)).To(Succeed())
		Expect(k8s.Delete(ctx, good)).To(Succeed())
	})

	DescribeTable("of ours is accepted", func(ctx SpecContext, pattern string, count int) {
		files, err := filepath.Glob(filepath.Join("..", "..", "..", "config", filepath.FromSlash(pattern)))
		Expect(err).NotTo(HaveOccurred())
		Expect(files).To(HaveLen(count))
		for _, file := range files {
			text, err := os.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			Expect(k8s.Create(ctx, parse(string(text)), client.DryRunAll)).To(Succeed(), file)
		}
	},
		Entry("in the samples", "samples/exportpolicy.yaml", 1),
		Entry("in the baseline", "policies/[^k]*.yaml", 3),
	)
})
