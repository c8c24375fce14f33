// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// published are the agent's writes of the records and slices of an export after the
// first n, each once: a cache that is behind makes it ask for a deletion again.
func (a *agent) published(n int, namespace, name string) []string {
	var out []string
	for _, line := range a.writer.written()[n:] {
		if !slices.Contains(out, line) && !strings.Contains(line, "ImportRecord") && (strings.HasSuffix(line, "/"+model.RecordName(namespace, name)) || strings.Contains(line, "/"+namespace+"."+name)) {
			out = append(out, line)
		}
	}
	return out
}

func (c *cluster) record(exchange, namespace, name string) *exchangev1alpha1.ExportRecord {
	return read[exchangev1alpha1.ExportRecord](c, exchange, model.RecordName(namespace, name))
}

var _ = Describe("the withdrawal of an export", func() {
	It("is stated by as many writes as the deletion of its record took, and overwritten when it is exported again", func() {
		ns := newNamespace("a")
		a := clusters["a"]
		exported := export(ns, "web")
		a.create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1"), exported)
		published := []string{"record in comity-a", "slice in comity-a"}
		Eventually(func() []string { return a.records(ns, "web") }).Should(Equal(published))
		before := a.record("comity-a", ns, "web")
		Eventually(func() []string { before = a.record("comity-a", ns, "web"); return before.Spec.Slices }).Should(Equal([]string{"web-x1"}))
		Expect(before.Spec.Namespace).NotTo(BeNil())

		writes := len(a.agent.writer.written())
		a.delete(exported)
		Eventually(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"withdrawal in comity-a"}))
		// Before, it took as many: the record and the slice were deleted.
		Consistently(func() []string { return a.agent.published(writes, ns, "web") }).Should(Equal([]string{
			"apply *v1alpha1.ExportRecord comity-a/web." + ns,
			"delete *v1.PartialObjectMetadata comity-a/" + ns + ".web-x1",
		}))
		after := a.record("comity-a", ns, "web")
		Expect(after.UID).To(Equal(before.UID))
		Expect(after.Spec.ExportUID).To(Equal(exported.UID))
		Expect(after.Spec.Ports).To(BeEmpty())
		Expect(after.Spec.Slices).To(BeEmpty())

		again := export(ns, "web")
		a.create(again)
		Eventually(func() []string { return a.records(ns, "web") }).Should(Equal(published))
		live := a.record("comity-a", ns, "web")
		Expect(live.Spec.ExportUID).To(Equal(again.UID))
		Expect(live.Spec.Ports).To(HaveLen(1))
	})

	It("is collected once it is an hour old and no member reports the export", Serial, func() {
		ns := newNamespace("a", "b")
		a, b := clusters["a"], clusters["b"]
		exported := export(ns, "web")
		a.create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1"), exported)
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
		a.delete(exported)
		Eventually(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"withdrawal in comity-a"}))
		reported := func() any {
			return read[exchangev1alpha1.ImportRecord](b, "comity-b-to-a", model.RecordName(ns, "web"))
		}
		Eventually(reported).Should(BeNil())

		By("keeping it while b reports it")
		report := &exchangev1alpha1.ImportRecord{
			ObjectMeta: metav1.ObjectMeta{Namespace: "comity-b-to-a", Name: model.RecordName(ns, "web")},
			Spec: exchangev1alpha1.ImportRecordSpec{
				Service: exchangev1alpha1.ServiceReference{Namespace: ns, Name: "web"}, ExportUID: exported.UID, Imported: true, Reason: model.ReasonImported, Since: metav1.Now(),
			},
		}
		b.stop() // its agent removes what it did not report
		b.create(report)
		key := types.NamespacedName{Namespace: ns, Name: "web"}
		Eventually(func() []model.Report { return a.agent.peers.Reports(key) }).Should(ContainElement(HaveField("Imported", true)), "what a has read")
		pass(2 * time.Hour)
		Consistently(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"withdrawal in comity-a"}))
		b.delete(report)
		b.start()
		b.awaitPeers()
		Eventually(func() []string {
			a.agent.policies.All() // as ten minutes later, when it is decided again
			return a.records(ns, "web")
		}).Should(BeEmpty())
	})

	It("is suspended while the ServiceExport exists, and ended once it does not", func() {
		ns := newNamespace("a")
		a := clusters["a"]
		exported, of := export(ns, "web"), service(ns, "web")
		a.create(of, exported)
		Eventually(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"record in comity-a"}))
		a.delete(of)
		withdrawn := func() exchangev1alpha1.ExportRecordSpec { return a.record("comity-a", ns, "web").Spec }
		Eventually(withdrawn).Should(And(HaveField("Withdrawn", true), HaveField("Suspended", true), HaveField("WithdrawnAt", Not(BeNil()))))
		a.delete(exported)
		Eventually(withdrawn).Should(And(HaveField("Withdrawn", true), HaveField("Suspended", false)))
		Expect(withdrawn().ExportUID).To(Equal(exported.UID))
	})

	It("FAULT 43: is stated by records that were restored without managedFields and with other labels", func() {
		ns := newNamespace("a", "b")
		a, b := clusters["a"], clusters["b"]
		exported := export(ns, "web")
		slice := endpoints(ns, "web", "web-x1", "10.1.0.1")
		a.create(service(ns, "web"), slice, exported)
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
		restored := client.RawPatch("application/json-patch+json", []byte(`[{"op":"replace","path":"/metadata/managedFields","value":[{}]},`+
			`{"op":"replace","path":"/metadata/labels","value":{"velero.io/restore-name":"x"}}]`))
		a.stop()
		Expect(a.client.Patch(ctx(), a.record("comity-a", ns, "web"), restored)).To(Succeed())
		Expect(a.client.Patch(ctx(), read[discoveryv1.EndpointSlice](a, "comity-a", ns+".web-x1"), restored)).To(Succeed())
		a.start()
		a.awaitPeers()
		slice.Endpoints[0].Addresses = []string{"10.1.0.2"}
		Expect(a.client.Update(ctx(), slice)).To(Succeed())
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.2"}))
		Eventually(func() bool { return model.IsManaged(a.record("comity-a", ns, "web")) }).Should(BeTrue())
		a.delete(exported)
		Eventually(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"withdrawal in comity-a"}))
		Expect(a.record("comity-a", ns, "web").Spec.Ports).To(BeEmpty())
		Eventually(func() []string { return b.ownedIn(ns) }).Should(BeEmpty())
	}, Serial)

	It("FAULT 4: is not stated of what a restored store does not have, until an administrator confirms it", func() {
		ns := newNamespace("a", "b")
		a, b := clusters["a"], clusters["b"]
		exported := export(ns, "web")
		a.create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1"), exported)
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
		a.stop()
		Expect(a.client.Patch(ctx(), a.record("comity-a", ns, "web"), client.RawPatch("application/merge-patch+json",
			[]byte(`{"spec":{"exportVersion":"999999999999"}}`)))).To(Succeed())
		a.delete(exported)
		a.start()
		a.awaitPeers()
		Eventually(func() bool { return a.record("comity-a", ns, "web").Spec.Lost }).Should(BeTrue())
		Consistently(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"record in comity-a", "slice in comity-a"}))
		for _, c := range []*cluster{a, b} {
			Expect(c.backends(ns, "web")()).To(Equal([]string{"a/10.1.0.1"}), "in cluster %s", c.id)
		}

		By("exporting it again, which is no loss any more")
		again := export(ns, "web")
		a.create(again)
		Eventually(func() exchangev1alpha1.ExportRecordSpec { return a.record("comity-a", ns, "web").Spec }).Should(
			And(HaveField("Lost", false), HaveField("ExportUID", again.UID), HaveField("ExportVersion", Not(Equal("999999999999")))))
		a.stop()
		Expect(a.client.Patch(ctx(), a.record("comity-a", ns, "web"), client.RawPatch("application/merge-patch+json",
			[]byte(`{"spec":{"exportVersion":"999999999999"}}`)))).To(Succeed())
		a.delete(again)
		a.start()
		a.awaitPeers()
		Eventually(func() bool { return a.record("comity-a", ns, "web").Spec.Lost }).Should(BeTrue())

		By("confirming that it is gone")
		Expect(a.client.Patch(ctx(), a.record("comity-a", ns, "web"), client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"annotations":{"`+model.AnnotationConfirmLost+`":"true"}}}`)))).To(Succeed())
		Eventually(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"withdrawal in comity-a"}))
		Expect(a.record("comity-a", ns, "web").Spec.Suspended).To(BeFalse())
		Eventually(func() map[string]string { return a.record("comity-a", ns, "web").Annotations }).ShouldNot(HaveKey(model.AnnotationConfirmLost))
		for _, c := range []*cluster{a, b} {
			Eventually(func() []string {
				c.agent.policies.All() // as ten seconds later, when an import is decided again
				return c.ownedIn(ns)
			}).Should(BeEmpty(), "in cluster %s", c.id)
		}
	}, Serial)

	It("is not stated, nor anything else written, because of a write to the status of the ServiceExport", func() {
		ns := newNamespace("a")
		a := clusters["a"]
		exported := export(ns, "web")
		a.create(service(ns, "web"), exported)
		Eventually(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"record in comity-a"}))
		before := a.record("comity-a", ns, "web")
		Expect(before.Spec.ExportVersion).To(Equal(exported.ResourceVersion))
		Eventually(func() string { return read[mcsv1beta1.ServiceExport](a, ns, "web").ResourceVersion }).ShouldNot(Equal(before.Spec.ExportVersion))
		Consistently(func() string { return a.record("comity-a", ns, "web").ResourceVersion }).Should(Equal(before.ResourceVersion))
	})

	It("is not stated by a change of endpoints, which does not write the record at all", func() {
		ns := newNamespace("a")
		a := clusters["a"]
		slice := endpoints(ns, "web", "web-x1", "10.1.0.1")
		a.create(service(ns, "web"), slice, export(ns, "web"))
		Eventually(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"record in comity-a", "slice in comity-a"}))
		Eventually(func() []string { return a.record("comity-a", ns, "web").Spec.Slices }).Should(Equal([]string{"web-x1"}))
		version := a.record("comity-a", ns, "web").ResourceVersion
		slice.Endpoints[0].Addresses = []string{"10.1.0.9"}
		Expect(a.client.Update(ctx(), slice)).To(Succeed())
		Eventually(func() []string {
			return read[discoveryv1.EndpointSlice](a, "comity-a", ns+".web-x1").Endpoints[0].Addresses
		}).Should(Equal([]string{"10.1.0.9"}))
		Consistently(func() string { return a.record("comity-a", ns, "web").ResourceVersion }).Should(Equal(version))

		By("adding a slice and removing the other: the record names what is there")
		second := endpoints(ns, "web", "web-x2", "10.1.0.3")
		a.create(second)
		Eventually(func() []string { return a.record("comity-a", ns, "web").Spec.Slices }).Should(Equal([]string{"web-x1", "web-x2"}))
		Expect(read[discoveryv1.EndpointSlice](a, "comity-a", ns+".web-x2")).NotTo(BeNil(), "the slice is there before the record names it")
		a.delete(slice)
		Eventually(func() []string { return a.record("comity-a", ns, "web").Spec.Slices }).Should(Equal([]string{"web-x2"}))
		Eventually(func() any { return read[discoveryv1.EndpointSlice](a, "comity-a", ns+".web-x1") }).Should(BeNil())
	})

	It("is not stated by the loss of the exchange namespace: what is exported is published in the next one", Serial, func() {
		ns := newNamespace("a")
		a := clusters["a"]
		gone := export(ns, "gone")
		for _, e := range []*mcsv1beta1.ServiceExport{export(ns, "web"), gone} {
			a.create(service(ns, e.Name), endpoints(ns, e.Name, e.Name+"-x1", "10.1.0.1"), e)
			Eventually(func() []string { return a.records(ns, e.Name) }).Should(HaveLen(2))
		}
		a.delete(gone)
		Eventually(func() []string { return a.records(ns, "gone") }).Should(Equal([]string{"withdrawal in comity-a"}))
		// The MemberRecord waits for everything but for what cannot be published.
		a.create(service(ns, "mars"), export(ns, "mars", "b", "mars"))
		Eventually(func() []string { return a.records(ns, "mars") }).Should(Equal([]string{"record in comity-a-to-b"}))
		a.remakeExchange("comity-a")
		Eventually(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"record in comity-a", "slice in comity-a"}))
		// An export of another spec that cannot be published is tried three times before the
		// record is written without it.
		Eventually(func() any { return read[exchangev1alpha1.MemberRecord](a, "comity-a", "a") }).ShouldNot(BeNil())
		Expect(a.records(ns, "gone")).To(BeEmpty(), "of what is neither exported nor published, nothing is known")
		for _, c := range clusters {
			c.awaitPeers()
		}
	})
})

// remakeExchange deletes an exchange namespace with everything in it, as the
// namespace controller does, and makes it again.
func (c *cluster) remakeExchange(name string) {
	GinkgoHelper()
	old := read[corev1.Namespace](c, "", name)
	c.delete(old)
	for _, kind := range []client.Object{
		&exchangev1alpha1.ExportRecord{}, &exchangev1alpha1.ImportRecord{}, &exchangev1alpha1.NamespaceRecord{}, &exchangev1alpha1.MemberRecord{}, &discoveryv1.EndpointSlice{},
	} {
		Expect(c.client.DeleteAllOf(ctx(), kind, client.InNamespace(name))).To(Succeed())
	}
	c.finalize(name)
	Eventually(func() error { return c.client.Create(ctx(), namespaced(name, old.Labels)) }).Should(Succeed())
}

// finalize ends the deletion of a namespace.
func (c *cluster) finalize(name string) {
	GinkgoHelper()
	typed, err := kubernetes.NewForConfig(c.config)
	Expect(err).NotTo(HaveOccurred())
	namespace := read[corev1.Namespace](c, "", name)
	namespace.Spec.Finalizers = nil
	_, err = typed.CoreV1().Namespaces().Finalize(ctx(), namespace, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// refuse makes the API server refuse every new ExportRecord in an exchange namespace.
func (c *cluster) refuse(exchange string) {
	GinkgoHelper()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "refuse-records"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{exchangev1alpha1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"exportrecords"}},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: fmt.Sprintf("object.metadata.namespace != %q", exchange), Message: "refused by a test"}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
	c.create(policy, binding)
	DeferCleanup(func() { c.delete(policy, binding) })
	// A policy takes effect a moment after it was stored.
	Eventually(func() bool {
		record := &exchangev1alpha1.ExportRecord{
			ObjectMeta: metav1.ObjectMeta{Namespace: exchange, Name: "x.y"},
			Spec: exchangev1alpha1.ExportRecordSpec{
				Service:           exchangev1alpha1.ServiceReference{Namespace: "y", Name: "x"},
				ExportUID:         "u",
				ExportedAt:        metav1.Now(),
				ServiceProperties: model.ServiceProperties{Type: mcsv1beta1.ClusterSetIP},
			},
		}
		return apierrors.IsInvalid(c.client.Create(ctx(), record, client.DryRunAll))
	}).Should(BeTrue())
}

var _ = Describe("FAULT 33: a scope that becomes narrower", Serial, func() {
	narrow := func(a *cluster, exported *mcsv1beta1.ServiceExport) {
		GinkgoHelper()
		exported.Annotations = map[string]string{model.AnnotationExportTo: "b"}
		a.annotate(exported)
	}
	begin := func() (a *cluster, ns string, exported *mcsv1beta1.ServiceExport) {
		GinkgoHelper()
		ns, a = newNamespace("a"), clusters["a"]
		exported = export(ns, "web")
		a.create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1"), exported)
		Eventually(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"record in comity-a", "slice in comity-a"}))
		return a, ns, exported
	}

	It("is withdrawn from the others though the narrower record is refused", func() {
		a, ns, exported := begin()
		a.refuse("comity-a-to-b")
		narrow(a, exported)
		Eventually(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"slice in comity-a-to-b", "withdrawal in comity-a"}))
		Eventually(func() string { return a.says(ns, "web") }).Should(ContainSubstring("refused by a test"))
	})

	It("is withdrawn from the others though the narrower exchange namespace is missing", func() {
		a, ns, exported := begin()
		Expect(a.client.Patch(ctx(), namespaced("comity-a-to-b", nil), client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"labels":{"`+model.LabelExchangeFrom+`":"another"}}}`)))).To(Succeed())
		DeferCleanup(func() {
			Expect(a.client.Patch(ctx(), namespaced("comity-a-to-b", nil), client.RawPatch("application/merge-patch+json",
				[]byte(`{"metadata":{"labels":{"`+model.LabelExchangeFrom+`":"a"}}}`)))).To(Succeed())
			Eventually(func() []string { return a.records(ns, "web") }).Should(ContainElement("record in comity-a-to-b"))
		})
		narrow(a, exported)
		Eventually(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"withdrawal in comity-a"}))
	})

	It("is withdrawn from the others though policies cannot be evaluated, and stays for who remains in scope", func() {
		a, ns, exported := begin()
		a.agent.rule(client.ObjectKeyFromObject(exported), decision.Verdict{Problem: "policies are still loading"})
		narrow(a, exported)
		Eventually(func() []string { return a.records(ns, "web") }).Should(Equal([]string{"record in comity-a-to-b", "slice in comity-a-to-b", "withdrawal in comity-a"}))
	})
})

// says is what was found of publishing an export.
func (c *cluster) says(namespace, name string) string {
	seen, _ := c.agent.running.Observe(client.ObjectKey{Namespace: namespace, Name: name})
	return seen.Detail
}
