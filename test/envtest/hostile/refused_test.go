// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// refusing makes a's API server refuse objects of which the CEL expression is false, as a quota or
// a policy of its administrator could. probe is one that is refused.
func refusing(ctx SpecContext, group, resource, expression string, probe client.Object) {
	GinkgoHelper()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "no-refused-" + resource},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource}},
			}}}},
			Validations: []admissionv1.Validation{{Expression: expression}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
	victim.create(ctx, policy, binding)
	DeferCleanup(func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(victim.client.Delete(ctx, binding))).To(Succeed())
		Expect(client.IgnoreNotFound(victim.client.Delete(ctx, policy))).To(Succeed())
	})
	Eventually(func() error {
		return victim.client.Create(ctx, probe.DeepCopyObject().(client.Object), client.DryRunAll)
	}).Should(MatchError(ContainSubstring(policy.Name)), "the policy is in force")
}

// FAULT 30: a peer publishes what our API server refuses.
var _ = Describe("FAULT 30", func() {
	It("misses only the part of the cluster whose slice is refused", func(ctx SpecContext) {
		probe := endpoints(honest, "probe", "10.0.0.1")
		probe.Labels["tier"] = "refused"
		refusing(ctx, "discovery.k8s.io", "endpointslices", "!has(object.metadata.labels) || !('tier' in object.metadata.labels) || object.metadata.labels.tier != 'refused'", probe)
		key := types.NamespacedName{Namespace: "refused", Name: "web"}
		for _, m := range []*member{victim, neighbor} {
			m.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace}})
		}
		bad := slice(key, "web-bad", []string{attacker.address(203)}, set("refused", "metadata", "labels", "tier"))
		objects := []forged{record(key), bad, slice(key, "web-good", []string{attacker.address(200)}), slice(key, "web-other", []string{attacker.address(201)})}
		put(ctx, objects...)
		DeferCleanup(func(ctx SpecContext) { retreat(ctx, objects, key) })
		Eventually(victim.backends(key.Namespace, key.Name)).WithContext(ctx).Should(Equal(twoBackends()), "the other slices of b")
		imported := &mcsv1beta1.ServiceImport{}
		Eventually(func() error { return victim.client.Get(ctx, key, imported) }).Should(Succeed(), "the ServiceImport")
		Expect(imported.Spec.IPs).To(HaveLen(1))
		Eventually(told(key.Namespace, key.Name)).WithContext(ctx).Should(ContainElement(ContainSubstring("the API server refuses EndpointSlices of cluster b")))

		By("taking the endpoints of another cluster in and out")
		neighbor.create(ctx, service(key.Namespace, key.Name), endpoints(key.Namespace, key.Name, neighbor.address(1)))
		neighbor.create(ctx, serviceExport(key.Namespace, key.Name))
		Eventually(victim.backends(key.Namespace, key.Name)).WithContext(ctx).Should(Equal(append(twoBackends(), "c/"+neighbor.address(1))))
		Expect(neighbor.client.Update(ctx, endpoints(key.Namespace, key.Name, neighbor.address(2)))).To(Succeed())
		Eventually(victim.backends(key.Namespace, key.Name)).WithContext(ctx).Should(Equal(append(twoBackends(), "c/"+neighbor.address(2))))

		By("removing a slice of b beside the refused one")
		withdraw(ctx, objects[3])
		Eventually(victim.backends(key.Namespace, key.Name)).WithContext(ctx).Should(Equal([]string{"b/" + attacker.address(200), "c/" + neighbor.address(2)}))

		By("reporting it to b, and not to c")
		Eventually(reportIn(ctx, model.ScopedExchangeNamespace("a", "b"), key)).Should(And(
			HaveField("Spec.Reason", model.ReasonRefused), HaveField("Spec.Imported", true), HaveField("Spec.Message", Not(ContainSubstring("no-refused-slices")))))
		Eventually(reportIn(ctx, model.ScopedExchangeNamespace("a", "c"), key)).Should(And(
			HaveField("Spec.Reason", model.ReasonImported), HaveField("Spec.Imported", true)))

		By("taking the slice in once it is accepted")
		put(ctx, slice(key, "web-bad", []string{attacker.address(203)}))
		Eventually(victim.backends(key.Namespace, key.Name)).WithContext(ctx).Should(Equal([]string{
			"b/" + attacker.address(200), "b/" + attacker.address(203), "c/" + neighbor.address(2),
		}))
		Expect(neighbor.client.Delete(ctx, serviceExport(key.Namespace, key.Name))).To(Succeed())
	})

	It("goes on with the endpoints of a derived Service of which an update is refused", func(ctx SpecContext) {
		key := types.NamespacedName{Namespace: "refused-service", Name: "web"}
		for _, m := range []*member{victim, neighbor} {
			m.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace}})
		}
		exported := service(key.Namespace, key.Name)
		neighbor.create(ctx, exported, endpoints(key.Namespace, key.Name, neighbor.address(1)), serviceExport(key.Namespace, key.Name))
		DeferCleanup(func(ctx SpecContext) {
			Expect(neighbor.client.Delete(ctx, serviceExport(key.Namespace, key.Name))).To(Succeed())
		})
		Eventually(victim.backends(key.Namespace, key.Name)).WithContext(ctx).Should(Equal([]string{"c/" + neighbor.address(1)}))
		derived := func() (ports []int32) {
			s := &corev1.Service{}
			Expect(victim.client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: model.DerivedName(key.Name)}, s)).To(Succeed())
			for _, p := range s.Spec.Ports {
				ports = append(ports, p.Port)
			}
			return ports
		}
		Eventually(func() error { return victim.client.Get(ctx, key, &mcsv1beta1.ServiceImport{}) }).Should(Succeed(), "the ServiceImport")
		refusing(ctx, "", "services", "object.metadata.namespace != 'refused-service'", service(key.Namespace, "probe"))

		By("adding a port, which the derived Service does not get")
		exported.Spec.Ports = append(exported.Spec.Ports, corev1.ServicePort{Name: "admin", Port: 90, Protocol: corev1.ProtocolTCP})
		Expect(neighbor.client.Update(ctx, exported)).To(Succeed())
		Eventually(told(key.Namespace, key.Name)).WithContext(ctx).Should(ContainElement(ContainSubstring("no-refused-services")))

		By("replacing the endpoints")
		Expect(neighbor.client.Update(ctx, endpoints(key.Namespace, key.Name, neighbor.address(2)))).To(Succeed())
		Eventually(victim.backends(key.Namespace, key.Name)).WithContext(ctx).Should(Equal([]string{"c/" + neighbor.address(2)}))
		Expect(derived()).To(Equal([]int32{80}))

		By("accepting it again")
		Expect(victim.client.Delete(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "no-refused-services"}})).To(Succeed())
		Eventually(func() error { return victim.client.Create(ctx, service(key.Namespace, "probe"), client.DryRunAll) }).Should(Succeed())
		Expect(neighbor.client.Update(ctx, endpoints(key.Namespace, key.Name, neighbor.address(3)))).To(Succeed())
		Eventually(derived).Should(Equal([]int32{80, 90}))
	})
})

// reportIn is what a reports of importing key, in one of its namespaces.
func reportIn(ctx context.Context, namespace string, key types.NamespacedName) func() *exchangev1alpha1.ImportRecord {
	return func() *exchangev1alpha1.ImportRecord {
		record := &exchangev1alpha1.ImportRecord{}
		if victim.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: model.RecordName(key.Namespace, key.Name)}, record) != nil {
			return &exchangev1alpha1.ImportRecord{}
		}
		return record
	}
}
