// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// The webhook answers through the API server, the Service and kube-proxy of a.
var _ = Describe("The webhook in a", Ordered, kep("restricting-exports"), func() {
	const namespace = "refusals"

	BeforeAll(func(ctx SpecContext) {
		for _, m := range bothMembers() {
			m.create(ctx, newNamespace(namespace))
		}
		external := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "external"},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "payments.example.com"},
		}
		clusterA.create(ctx, external, newService(namespace, "turning", corev1.ServiceTypeClusterIP), newExport(namespace, "turning"))
	})

	for _, version := range []string{"v1alpha1", "v1beta1"} {
		It("refuses the export of an ExternalName Service, "+version, func(ctx SpecContext) {
			clusterA.refuses(ctx, exportIn(version, namespace, "external", nil, nil),
				"ServiceExport refusals/external", "[no-external-name] metadata.name:", "ExternalName", "Remedy: Export a Service of type ClusterIP")
			Expect(apierrors.IsNotFound(clusterA.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: "external"}, newExport("", "")))).To(BeTrue(), "nothing was stored")
		})

		DescribeTable("refuses a scope with one clear message, "+version,
			func(ctx SpecContext, scope string, wanted ...string) {
				wanted = append(wanted, `[export-scope] metadata.annotations["comity.dev/export-to"]:`, "Remedy: ")
				asAnnotation := exportIn(version, namespace, "scoped", nil, map[string]string{model.AnnotationExportTo: scope})
				clusterA.refuses(ctx, asAnnotation, wanted...)
				asLabel := exportIn(version, namespace, "scoped", map[string]string{model.LabelExportTo: scope}, nil)
				clusterA.refuses(ctx, asLabel, wanted...)
			},
			Entry("of an unknown cluster", "b,c", "names c,", "known clusters: b"),
			Entry("of itself", "a", `"a"`, "this cluster itself"),
			Entry("of nothing", "", "names no cluster"),
			Entry("that is malformed", "b,,b", `item 2 of "b,,b" is empty`),
			Entry("of something that is no cluster id", "B.1", `"B.1"`, "RFC 1123"),
			Entry("as the documentation prints it, of clusters that are not here", "cluster-2,cluster-3", "names cluster-2,", "names cluster-3,"),
		)

		It("makes an annotation of the label export-to, "+version, func(ctx SpecContext) {
			for i, scope := range []string{"b", "b,b"} {
				name := fmt.Sprintf("labeled-%s-%d", version, i)
				clusterA.applied(ctx, exportIn(version, namespace, name, map[string]string{model.LabelExportTo: scope, "team": "web"}, nil))
				stored, err := clusterA.exportOf(ctx, types.NamespacedName{Namespace: namespace, Name: name})
				Expect(err).NotTo(HaveOccurred())
				Expect(stored.Labels).To(Equal(map[string]string{"team": "web"}))
				Expect(stored.Annotations).To(HaveKeyWithValue(model.AnnotationExportTo, scope))
			}
		})
	}

	It("refuses that an exported Service turns ExternalName", func(ctx SpecContext) {
		const turn = `{"spec": {"type": "ExternalName", "externalName": "payments.example.com", "clusterIP": null, "clusterIPs": null}}`
		service := newService(namespace, "turning", corev1.ServiceTypeClusterIP)
		readsRefusal(shell.refused(ctx, "kubectl --context a -n refusals patch service turning --type=merge -p '%s'", turn),
			"Service refusals/turning", "because ServiceExport refusals/turning exports it", "[no-external-name] spec.type:", "Remedy: Keep the type, or delete ServiceExport")
		Expect(clusterA.client.Delete(ctx, newExport(namespace, "turning"))).To(Succeed())
		Eventually(ctx, func() error { return clusterA.patch(ctx, service.DeepCopy(), turn) }).Should(Succeed(), "once it is not exported")
	})

	It("refuses a policy that does not compile, and the others stay in force", func(ctx SpecContext) {
		broken := newPolicy("broken", "package comity.policies.broken\n\ndeny contains {")
		broken.SetGroupVersionKind(policyv1alpha1.GroupVersion.WithKind("ExportPolicy"))
		out := shell.refused(ctx, "%s", clusterA.applyCommand(broken))
		Expect(out).To(And(ContainSubstring("ExportPolicy broken cannot be used"), ContainSubstring("broken.rego:3:"), ContainSubstring("Remedy: ")))
		clusterA.refuses(ctx, exportIn("v1beta1", namespace, "external", nil, nil), "[no-external-name]")
	})

	It("asks a new policy as soon as it is loaded, and no longer than it is there", func(ctx SpecContext) {
		policy := newPolicy("no-secrets", `package comity.policies.no_secrets

deny contains {"msg": "this name is taken", "field": "metadata.name", "remedy": "Choose another."} if {
	startswith(input.object.metadata.name, "secret-")
}
`)
		create := func(name string) error {
			_, err := evaluated(ctx, func() (string, error) {
				return "", clusterA.client.Create(ctx, newExport(namespace, name), client.DryRunAll)
			})
			return err
		}
		Expect(create("secret-thing")).To(Succeed())
		clusterA.create(ctx, policy)
		Eventually(ctx, create).WithArguments("secret-thing").Should(MatchError(ContainSubstring("[no-secrets] metadata.name: this name is taken. Remedy: Choose another.")))
		clusterA.compiled(ctx, policy.Name)
		Expect(create("other")).To(Succeed())
		Expect(clusterA.client.Delete(ctx, policy)).To(Succeed())
		Eventually(ctx, create).WithArguments("secret-thing").Should(Succeed())
	})
})

// applyCommand is `kubectl apply` of an object, as a user types it.
func (m *member) applyCommand(object any) string {
	GinkgoHelper()
	text, err := yaml.Marshal(object)
	Expect(err).NotTo(HaveOccurred())
	return fmt.Sprintf("kubectl --context %s apply -f - <<'END'\n%sEND", m.ID(), text)
}

// applied applies an object, which must be accepted.
func (m *member) applied(ctx context.Context, object any) {
	GinkgoHelper()
	shell.run(ctx, "%s", m.applyCommand(object))
}

// refuses applies an object; what the user reads is the webhook's refusal with all of these words.
func (m *member) refuses(ctx context.Context, object any, wanted ...string) {
	GinkgoHelper()
	readsRefusal(shell.refused(ctx, "%s", m.applyCommand(object)), wanted...)
}

// readsRefusal expects that kubectl printed a refusal by policy, and no other error.
func readsRefusal(out string, wanted ...string) {
	GinkgoHelper()
	Expect(out).To(ContainSubstring("Error from server (Forbidden): "), "refused, but not by policy")
	for _, words := range wanted {
		Expect(out).To(ContainSubstring(words))
	}
}

// exportIn is a ServiceExport of one version of the API.
func exportIn(version, namespace, name string, labels, annotations map[string]string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("multicluster.x-k8s.io/" + version)
	object.SetKind("ServiceExport")
	object.SetNamespace(namespace)
	object.SetName(name)
	object.SetLabels(labels)
	object.SetAnnotations(annotations)
	return object
}

func newPolicy(name, rego string) *policyv1alpha1.ExportPolicy {
	return &policyv1alpha1.ExportPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: policyv1alpha1.ExportPolicySpec{Rego: rego}}
}

// compiled waits until the status of a policy says that it compiled.
func (m *member) compiled(ctx context.Context, name string) {
	GinkgoHelper()
	policy := &policyv1alpha1.ExportPolicy{}
	Eventually(ctx, func(g Gomega) {
		g.Expect(m.client.Get(ctx, types.NamespacedName{Name: name}, policy)).To(Succeed())
		g.Expect(policy.Status.Conditions).To(ContainElement(And(
			HaveField("Type", policyv1alpha1.ConditionCompiled), HaveField("Status", metav1.ConditionTrue))))
	}).Should(Succeed())
}
