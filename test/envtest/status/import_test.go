// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/sync/model"
)

// apply does what the sync loop does: it applies text as owner, in namespace.
func apply(ctx SpecContext, owner, namespace, text string) {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(text), object)).To(Succeed())
	object.SetNamespace(namespace)
	Expect(direct.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(owner), client.ForceOwnership)).To(Succeed())
}

const (
	importText = `
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceImport
metadata: {name: web, annotations: {multicluster.kubernetes.io/derived-service: derived-1}}
spec: {type: ClusterSetIP, ports: [{port: 80, protocol: TCP}], ips: ["10.0.0.77"]}
`
	derivedText = `
apiVersion: v1
kind: Service
metadata: {name: derived-1, labels: {multicluster.kubernetes.io/service-name: web}}
spec: {ports: [{port: 80, protocol: TCP}]}
`
	sliceText = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: derived-1-b, labels: {multicluster.kubernetes.io/service-name: web, multicluster.kubernetes.io/source-cluster: b}}
addressType: IPv4
endpoints: [{addresses: ["10.1.0.1"]}]
`
)

func getImport(ctx SpecContext, key types.NamespacedName) *mcsv1beta1.ServiceImport {
	GinkgoHelper()
	imported := &mcsv1beta1.ServiceImport{}
	Expect(direct.Get(ctx, key, imported)).To(Succeed())
	return imported
}

// shown is what a reader of the import sees.
type shown struct {
	Ready    string
	Slices   mcsv1beta1.EndpointSliceObjectsStatus
	Clusters []string
}

func expectImport(ctx SpecContext, key types.NamespacedName, want shown) {
	GinkgoHelper()
	Eventually(func() shown {
		imported := getImport(ctx, key)
		got := shown{Ready: conditionsOf(imported.Status.Conditions)["Ready"], Slices: imported.Status.EndpointSliceObjects}
		for _, entry := range imported.Status.Clusters {
			got.Clusters = append(got.Clusters, entry.Cluster)
		}
		return got
	}).WithTimeout(patience).Should(Equal(want))
}

var _ = Describe("The status of a ServiceImport", func() {
	var key types.NamespacedName

	BeforeEach(func(ctx SpecContext) {
		key = types.NamespacedName{Namespace: newNamespace(ctx), Name: "web"}
	})

	It("follows the derived objects and the constituents", func(ctx SpecContext) {
		apply(ctx, model.FieldOwner, key.Namespace, importText)
		expectImport(ctx, key, shown{Ready: "False/Pending", Slices: "Absent"})

		world.observe(key, published())
		expectImport(ctx, key, shown{Ready: "False/Pending", Slices: "Absent", Clusters: []string{"a", "b"}})

		apply(ctx, model.FieldOwner, key.Namespace, derivedText)
		expectImport(ctx, key, shown{Ready: "True/Ready", Slices: "Absent", Clusters: []string{"a", "b"}})

		apply(ctx, model.FieldOwner, key.Namespace, sliceText)
		expectImport(ctx, key, shown{Ready: "True/Ready", Slices: "Present", Clusters: []string{"a", "b"}})
		ready := meta.FindStatusCondition(getImport(ctx, key).Status.Conditions, "Ready")
		Expect(ready.Message).To(Equal("web." + key.Namespace + ".svc.clusterset.local resolves to 10.0.0.77; exported by clusters a, b"))

		By("b stopping to export")
		slice := &discoveryv1.EndpointSlice{}
		slice.Namespace, slice.Name = key.Namespace, "derived-1-b"
		Expect(direct.Delete(ctx, slice)).To(Succeed())
		only := published()
		only.Sources = only.Sources[:1]
		world.observe(key, only)
		expectImport(ctx, key, shown{Ready: "True/Ready", Slices: "Absent", Clusters: []string{"a"}})

		By("the derived Service going")
		service := &corev1.Service{}
		service.Namespace, service.Name = key.Namespace, "derived-1"
		Expect(direct.Delete(ctx, service)).To(Succeed())
		expectImport(ctx, key, shown{Ready: "False/Pending", Slices: "Absent", Clusters: []string{"a"}})
		expectEvents(ctx, key, "ServiceImport", "Ready", "Pending")
	})

	It("does not keep what something else put there", func(ctx SpecContext) {
		apply(ctx, model.FieldOwner, key.Namespace, importText)
		apply(ctx, model.FieldOwner, key.Namespace, derivedText)
		want := shown{Ready: "True/Ready", Slices: "Absent", Clusters: []string{"a", "b"}}
		world.observe(key, published())
		expectImport(ctx, key, want)

		By("a former implementation having written another cluster, and one that exports it")
		imported := getImport(ctx, key)
		before := client.MergeFrom(imported.DeepCopy())
		imported.Status.Clusters = []mcsv1beta1.ClusterStatus{{Cluster: "gone"}, {Cluster: "a"}, {Cluster: "b"}}
		imported.Status.Conditions = append(imported.Status.Conditions,
			metav1.Condition{Type: "Frozen", Status: "True", Reason: "Frozen", LastTransitionTime: metav1.Now()},
			metav1.Condition{Type: "Programmed", Status: "True", Reason: "Programmed", LastTransitionTime: metav1.Now()})
		Expect(direct.Status().Patch(ctx, imported, before, client.FieldOwner("former"))).To(Succeed())
		theirs := "{apiVersion: multicluster.x-k8s.io/v1beta1, kind: ServiceImport, metadata: {name: web}, status: {clusters: [{cluster: b}]}}"
		object := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte(theirs), object)).To(Succeed())
		object.SetNamespace(key.Namespace)
		Expect(direct.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("former"))).To(Succeed())
		expectImport(ctx, key, want)
		Eventually(func() map[string]string { return conditionsOf(getImport(ctx, key).Status.Conditions) }).WithTimeout(patience).
			Should(And(HaveKey("Programmed"), Not(HaveKey("Frozen"))))

		By("the cluster not exporting it any more that both wrote")
		only := published()
		only.Sources = only.Sources[:1]
		world.observe(key, only)
		want.Clusters = []string{"a"}
		expectImport(ctx, key, want)
	})

	It("takes no object of somebody else's for a derived one", func(ctx SpecContext) {
		apply(ctx, model.FieldOwner, key.Namespace, importText)
		apply(ctx, "somebody", key.Namespace, derivedText)
		apply(ctx, "somebody", key.Namespace, sliceText)
		world.observe(key, model.Observation{Publication: model.PublicationNone, Problems: []model.Problem{
			{Reason: model.ReasonNameTaken, Message: "Service derived-1 is not Comity's; rename it"},
		}})
		expectImport(ctx, key, shown{Ready: "False/NameTaken", Slices: "Absent"})
		expectEvents(ctx, key, "ServiceImport", "NameTaken")
	})

	It("is not written on a ServiceImport that Comity did not make", func(ctx SpecContext) {
		apply(ctx, "somebody", key.Namespace, importText)
		version := getImport(ctx, key).ResourceVersion
		world.observe(key, published())

		By("waiting for one that it made, which comes later")
		ours := types.NamespacedName{Namespace: newNamespace(ctx), Name: "web"}
		apply(ctx, model.FieldOwner, ours.Namespace, importText)
		expectImport(ctx, ours, shown{Ready: "False/Pending", Slices: "Absent"})
		Expect(getImport(ctx, key).ResourceVersion).To(Equal(version))
		expectEvents(ctx, key, "ServiceImport")
	})

	It("keeps the clusters that were not read since a restart", func(ctx SpecContext) {
		apply(ctx, model.FieldOwner, key.Namespace, importText)
		apply(ctx, model.FieldOwner, key.Namespace, derivedText)
		world.observe(key, published())
		want := shown{Ready: "True/Ready", Slices: "Absent", Clusters: []string{"a", "b"}}
		expectImport(ctx, key, want)
		version := getImport(ctx, key).ResourceVersion

		stop()
		partial := published()
		partial.Sources[1].State, partial.Sources[1].Starting = model.SourceNotRead, true
		partial.Unsynced, partial.Starting = []model.ClusterID{"b"}, []model.ClusterID{"b"}
		start()
		world.observe(key, partial)
		later := types.NamespacedName{Namespace: newNamespace(ctx), Name: "web"}
		apply(ctx, model.FieldOwner, later.Namespace, importText)
		expectImport(ctx, later, shown{Ready: "False/Pending", Slices: "Absent"})
		Expect(getImport(ctx, key).ResourceVersion).To(Equal(version))
	})
})
