// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
)

const patience = 10 * time.Second

// newNamespace makes one that no other spec uses.
func newNamespace(ctx SpecContext) string {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	Expect(direct.Create(ctx, namespace)).To(Succeed())
	return namespace.Name
}

func createService(ctx SpecContext, key types.NamespacedName) *corev1.Service {
	GinkgoHelper()
	service := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	service.Namespace, service.Name = key.Namespace, key.Name
	Expect(direct.Create(ctx, service)).To(Succeed())
	return service
}

func createExport(ctx SpecContext, key types.NamespacedName) *mcsv1beta1.ServiceExport {
	GinkgoHelper()
	export := &mcsv1beta1.ServiceExport{}
	export.Namespace, export.Name = key.Namespace, key.Name
	Expect(direct.Create(ctx, export)).To(Succeed())
	return export
}

func getExport(ctx SpecContext, key types.NamespacedName) *mcsv1beta1.ServiceExport {
	GinkgoHelper()
	export := &mcsv1beta1.ServiceExport{}
	Expect(direct.Get(ctx, key, export)).To(Succeed())
	return export
}

// expectConditions waits until the export has exactly these conditions.
func expectConditions(ctx SpecContext, key types.NamespacedName, want map[string]string) {
	GinkgoHelper()
	Eventually(func() map[string]string { return conditionsOf(getExport(ctx, key).Status.Conditions) }).
		WithTimeout(patience).Should(Equal(want))
}

// expectEvents waits for exactly these reasons on the object, in any order, each
// as often as listed.
func expectEvents(ctx SpecContext, key types.NamespacedName, kind string, want ...string) {
	GinkgoHelper()
	Eventually(func() []string {
		var list eventsv1.EventList
		Expect(direct.List(ctx, &list, client.InNamespace(key.Namespace))).To(Succeed())
		reasons := []string{}
		for i := range list.Items {
			one := &list.Items[i]
			if one.Regarding.Kind != kind || one.Regarding.Name != key.Name {
				continue
			}
			Expect(one.ReportingController).To(Equal("comity"))
			count := 1
			if one.Series != nil {
				count = int(one.Series.Count)
			}
			for range count {
				reasons = append(reasons, one.Reason)
			}
		}
		return reasons
	}).WithTimeout(patience).Should(ConsistOf(want))
}

// settle returns once everything asked for before is done: there is one worker,
// and it got as far as an export that came later.
func settle(ctx SpecContext, namespace string) {
	GinkgoHelper()
	marker := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "marker-"}}
	Expect(direct.Create(ctx, marker)).To(Succeed())
	Eventually(func() []metav1.Condition { return getExport(ctx, client.ObjectKeyFromObject(marker)).Status.Conditions }).
		WithTimeout(patience).ShouldNot(BeEmpty())
}

var conflict = model.Conflict{Reason: mcsv1beta1.ServiceExportReasonPortConflict, Message: `port "http": 80/TCP in a; 8080/TCP in b.`}

var _ = Describe("The status of a ServiceExport", func() {
	var key types.NamespacedName

	BeforeEach(func(ctx SpecContext) {
		key = types.NamespacedName{Namespace: newNamespace(ctx), Name: "web"}
	})

	It("says that the Service is missing, and becomes valid when it comes", func(ctx SpecContext) {
		createExport(ctx, key)
		expectConditions(ctx, key, map[string]string{"Valid": "False/NoService", "Admitted": "True/Admitted"})
		valid := meta.FindStatusCondition(getExport(ctx, key).Status.Conditions, "Valid")
		Expect(valid.Message).To(Equal("Service " + key.String() + " does not exist in this cluster; create it or delete this ServiceExport"))

		createService(ctx, key)
		expectConditions(ctx, key, map[string]string{"Valid": "True/Valid", "Admitted": "True/Admitted"})
		world.observe(key, published())
		expectConditions(ctx, key, map[string]string{
			"Valid": "True/Valid", "Ready": "True/Exported", "Conflict": "False/NoConflicts", "Admitted": "True/Admitted",
		})
		expectEvents(ctx, key, "ServiceExport", "NoService", "Valid", "Exported")
	})

	It("shows a conflict while there is one, and tells of each turn once", func(ctx SpecContext) {
		createService(ctx, key)
		createExport(ctx, key)
		world.observe(key, published())
		with := func(conflict string) map[string]string {
			return map[string]string{"Valid": "True/Valid", "Ready": "True/Exported", "Conflict": conflict, "Admitted": "True/Admitted"}
		}
		expectConditions(ctx, key, with("False/NoConflicts"))
		world.observe(key, published(conflict))
		expectConditions(ctx, key, with("True/PortConflict"))
		world.pass(time.Minute)
		longer := conflict
		longer.Message += " And c."
		world.observe(key, published(longer))
		Eventually(func() string {
			return meta.FindStatusCondition(getExport(ctx, key).Status.Conditions, "Conflict").Message
		}).WithTimeout(patience).Should(Equal(longer.Message))
		world.pass(time.Minute)
		world.observe(key, published())
		expectConditions(ctx, key, with("False/NoConflicts"))
		expectEvents(ctx, key, "ServiceExport", "Exported", "PortConflict", "NoConflicts")
	})

	It("leaves the conditions of others alone, and restores its own", func(ctx SpecContext) {
		createService(ctx, key)
		createExport(ctx, key)
		expectConditions(ctx, key, map[string]string{"Valid": "True/Valid", "Admitted": "True/Admitted"})

		export := getExport(ctx, key)
		meta.SetStatusCondition(&export.Status.Conditions, metav1.Condition{Type: "Theirs", Status: metav1.ConditionTrue, Reason: "Because", Message: "m"})
		meta.RemoveStatusCondition(&export.Status.Conditions, "Admitted")
		Expect(direct.Status().Update(ctx, export, client.FieldOwner("somebody"))).To(Succeed())
		expectConditions(ctx, key, map[string]string{"Valid": "True/Valid", "Admitted": "True/Admitted", "Theirs": "True/Because"})

		world.observe(key, published(conflict))
		expectConditions(ctx, key, map[string]string{
			"Valid": "True/Valid", "Ready": "True/Exported", "Conflict": "True/PortConflict", "Admitted": "True/Admitted", "Theirs": "True/Because",
		})
		Expect(getExport(ctx, key).ManagedFields).To(ContainElement(SatisfyAll(
			HaveField("Manager", "comity"), HaveField("Operation", metav1.ManagedFieldsOperationApply), HaveField("Subresource", "status"),
		)))
	})

	It("writes nothing when nothing changed, and nothing after a restart", func(ctx SpecContext) {
		createService(ctx, key)
		createExport(ctx, key)
		world.observe(key, published(conflict))
		expectConditions(ctx, key, map[string]string{
			"Valid": "True/Valid", "Ready": "True/Exported", "Conflict": "True/PortConflict", "Admitted": "True/Admitted",
		})
		settle(ctx, key.Namespace)
		version, writes := getExport(ctx, key).ResourceVersion, statusWrites.Load()
		for range 3 {
			world.observe(key, published(conflict))
		}
		settle(ctx, key.Namespace)
		Expect(getExport(ctx, key).ResourceVersion).To(Equal(version))
		Expect(statusWrites.Load()-writes).To(BeEquivalentTo(1), "the one of settle")

		By("restarting while b has not been read yet and no policy is loaded")
		stop()
		partial := published()
		partial.Starting = []model.ClusterID{"b"}
		world.decide(key, decision.Verdict{Problem: "policies are not loaded yet"})
		writes = statusWrites.Load()
		start()
		world.observe(key, partial)
		settle(ctx, key.Namespace)
		Expect(getExport(ctx, key).ResourceVersion).To(Equal(version))
		Expect(statusWrites.Load()-writes).To(BeEquivalentTo(1), "the one of settle, though every object was looked at")
		expectEvents(ctx, key, "ServiceExport", "Exported", "PortConflict")
	})

	It("is decided anew when policies change, and when the labels of the namespace do", func(ctx SpecContext) {
		createService(ctx, key)
		createExport(ctx, key)
		expectConditions(ctx, key, map[string]string{"Valid": "True/Valid", "Admitted": "True/Admitted"})

		world.decide(key, decision.Verdict{Outcome: decision.Denied, Digest: "d", Violations: []decision.Violation{{
			Policy: "no-shop", Field: "metadata.name", Message: "the name is taken", Remedy: "Choose another.",
		}}})
		world.policies.All()
		expectConditions(ctx, key, map[string]string{"Valid": "True/Valid", "Admitted": "False/PolicyDenied"})
		admitted := meta.FindStatusCondition(getExport(ctx, key).Status.Conditions, "Admitted")
		Expect(admitted.Message).To(SatisfyAll(ContainSubstring("no-shop"), ContainSubstring("metadata.name"), ContainSubstring("Choose another.")))

		world.decide(key, decision.Verdict{Outcome: decision.Allowed, Digest: "d"})
		namespace := &corev1.Namespace{}
		Expect(direct.Get(ctx, client.ObjectKey{Name: key.Namespace}, namespace)).To(Succeed())
		namespace.Labels["team"] = "shop"
		Expect(direct.Update(ctx, namespace)).To(Succeed())
		expectConditions(ctx, key, map[string]string{"Valid": "True/Valid", "Admitted": "True/Admitted"})
		expectEvents(ctx, key, "ServiceExport", "PolicyDenied", "Admitted")
	})
})
