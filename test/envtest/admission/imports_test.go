// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

const remedy = "change the exported Service in its own cluster instead; in an emergency an administrator acts as Comity: kubectl --as=" + comity

// older are foreign objects with Comity's labels that were there before the policies.
var older []client.Object

func makeOlder(ctx context.Context) {
	GinkgoHelper()
	Expect(admin.Create(ctx, namespace("older"))).To(Succeed())
	older = []client.Object{
		service("older", "derived-1", managedBy), serviceImport("older", "web", managedBy), slice("older", "derived-1-b", "derived-1", sliceManagedBy),
	}
	for _, o := range older {
		Expect(alice.Create(ctx, o)).To(Succeed())
	}
}

// merge sends a JSON merge patch.
func merge(ctx context.Context, c client.Client, o client.Object, patch map[string]any) error {
	GinkgoHelper()
	data, err := json.Marshal(patch)
	Expect(err).NotTo(HaveOccurred())
	return c.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, data))
}

// kinds picks the derived objects.
func (w *world) kinds(which string) client.Object {
	return map[string]client.Object{"Service": w.derived, "ServiceImport": w.imported, "EndpointSlice": w.slice}[which]
}

type patch = map[string]any

func metadata(field string, entries patch) patch { return patch{"metadata": patch{field: entries}} }

var _ = Describe("what Comity imported", func() {
	var w *world
	BeforeEach(func(ctx SpecContext) { w = importing(ctx) }, NodeTimeout(time.Minute))

	refusedPatch := func(ctx SpecContext, kind string, change patch, message string) {
		before := w.kinds(kind)
		for _, c := range []client.Client{alice, admin} {
			err := merge(ctx, c, before, change)
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(And(ContainSubstring(message), ContainSubstring(remedy))))
		}
		w.read(ctx)
		Expect(w.kinds(kind)).To(Equal(before))
	}
	const refused = "a change is refused to users and to administrators, and says why:"
	DescribeTable(refused, refusedPatch,
		Entry("ports of a derived Service", "Service", patch{"spec": patch{"ports": []patch{{"name": "http", "port": 81}}}}, "spec: only Comity changes it", SpecTimeout(time.Minute)),
		Entry("selector of a derived Service", "Service", patch{"spec": patch{"selector": patch{"app": "mine"}}}, "spec: only Comity changes it", SpecTimeout(time.Minute)),
		Entry("external IPs of a derived Service", "Service", patch{"spec": patch{"externalIPs": []string{"192.0.2.1"}}}, "spec: only Comity changes it", SpecTimeout(time.Minute)),
		Entry("the MCS API's labels of a derived Service", "Service", metadata("labels", patch{model.LabelServiceName: nil}),
			"changed labels "+model.LabelServiceName+": only Comity sets app.kubernetes.io/managed-by", SpecTimeout(time.Minute)),
		Entry("a label that kube-proxy reads", "Service", metadata("labels", patch{"service.kubernetes.io/headless": ""}), "changed labels service.kubernetes.io/headless", SpecTimeout(time.Minute)),
		Entry("the label by which the policies select", "Service", metadata("labels", patch{"app.kubernetes.io/managed-by": "me"}), "changed labels app.kubernetes.io/managed-by", SpecTimeout(time.Minute)),
		Entry("owners of a derived Service", "Service", patch{"metadata": patch{"ownerReferences": []patch{
			{"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "01234567-89ab-cdef-0123-456789abcdef"}}}},
			"metadata.ownerReferences", SpecTimeout(time.Minute)),
		Entry("the mark that Comity made it", "Service", patch{"metadata": patch{"managedFields": []patch{{}}}}, "in metadata.managedFields: only Comity", SpecTimeout(time.Minute)),
		Entry("spec of a ServiceImport", "ServiceImport", patch{"spec": patch{"type": "Headless"}}, "spec: only Comity changes it", SpecTimeout(time.Minute)),
		Entry("the name of the derived Service", "ServiceImport", metadata("annotations", patch{model.AnnotationDerivedName: "mine"}),
			"changed annotations "+model.AnnotationDerivedName+": of those of comity.dev", SpecTimeout(time.Minute)),
		Entry("the list of the exports", "Service", metadata("annotations", patch{model.AnnotationList: "x"}), "changed annotations "+model.AnnotationList, SpecTimeout(time.Minute)),
		Entry("the tiers in force", "Service", metadata("annotations", patch{model.AnnotationTiers: "*"}), "changed annotations "+model.AnnotationTiers, SpecTimeout(time.Minute)),
		Entry("the copy of the list", "ServiceImport", metadata("annotations", patch{model.AnnotationList: nil}), "changed annotations "+model.AnnotationList, SpecTimeout(time.Minute)),
		Entry("the digest of what Comity applied", "ServiceImport", metadata("annotations", patch{model.AnnotationApplied: nil}), "changed annotations "+model.AnnotationApplied, SpecTimeout(time.Minute)),
		Entry("a label of the MCS API", "ServiceImport", metadata("labels", patch{"multicluster.kubernetes.io/x": "y"}), "changed labels multicluster.kubernetes.io/x", SpecTimeout(time.Minute)),
		Entry("the mark on a ServiceImport", "ServiceImport", patch{"metadata": patch{"managedFields": []patch{{}}}}, "in metadata.managedFields: only Comity", SpecTimeout(time.Minute)),
		Entry("endpoints of a slice", "EndpointSlice", patch{"endpoints": []patch{{"addresses": []string{"10.9.9.9"}}}}, "endpoints, ports and addressType: only Comity", SpecTimeout(time.Minute)),
		Entry("ports of a slice", "EndpointSlice", patch{"ports": []patch{{"name": "http", "port": 1}}}, "endpoints, ports and addressType: only Comity", SpecTimeout(time.Minute)),
		Entry("the Service that a slice feeds", "EndpointSlice", metadata("labels", patch{discoveryv1.LabelServiceName: "mine"}), "changed labels "+discoveryv1.LabelServiceName, SpecTimeout(time.Minute)),
		Entry("no Service that a slice feeds", "EndpointSlice", metadata("labels", patch{discoveryv1.LabelServiceName: nil}), "changed labels "+discoveryv1.LabelServiceName, SpecTimeout(time.Minute)),
		Entry("the cluster that a slice is from", "EndpointSlice", metadata("labels", patch{model.LabelSourceCluster: "c"}), "changed labels "+model.LabelSourceCluster, SpecTimeout(time.Minute)),
		Entry("the label of a slice by which the policies select", "EndpointSlice", metadata("labels", patch{discoveryv1.LabelManagedBy: nil}), "changed labels "+discoveryv1.LabelManagedBy, SpecTimeout(time.Minute)),
	)

	DescribeTable("a status write is refused:", func(ctx SpecContext, kind string, change patch, message string) {
		data, err := json.Marshal(change)
		Expect(err).NotTo(HaveOccurred())
		for _, c := range []client.Client{alice, admin} {
			err = c.SubResource("status").Patch(ctx, w.kinds(kind).DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, data))
			Expect(err).To(MatchError(And(ContainSubstring(message), ContainSubstring(remedy))))
		}
	},
		Entry("clusters of a ServiceImport", "ServiceImport", patch{"status": patch{"clusters": []patch{{"cluster": "c"}}}}, "status: only Comity changes it", SpecTimeout(time.Minute)),
		Entry("labels of a Service by way of its status", "Service", metadata("labels", patch{model.LabelServiceName: "x"}), "changed labels "+model.LabelServiceName, SpecTimeout(time.Minute)),
	)

	DescribeTable("users may", func(ctx SpecContext, kind string, change patch) {
		Expect(merge(ctx, alice, w.kinds(kind), change)).To(Succeed())
	},
		Entry("say what becomes of endpoints of a lost cluster", "ServiceImport", metadata("annotations", patch{model.AnnotationOnLost: "keep"}), SpecTimeout(time.Minute)),
		Entry("set tiers", "ServiceImport", metadata("annotations", patch{model.AnnotationTiers: "self; *"}), SpecTimeout(time.Minute)),
		Entry("confirm a takeover", "ServiceImport", metadata("annotations", patch{model.AnnotationConfirmTakeover: "c/uid"}), SpecTimeout(time.Minute)),
		Entry("add labels of their own", "ServiceImport", metadata("labels", patch{"team": "shop"}), SpecTimeout(time.Minute)),
		Entry("add annotations of their own", "Service", metadata("annotations", patch{"example.com/note": "x"}), SpecTimeout(time.Minute)),
		Entry("label slices", "EndpointSlice", metadata("labels", patch{"team": "shop"}), SpecTimeout(time.Minute)),
	)

	It("is not deleted by users and administrators, also not all at once", func(ctx SpecContext) {
		for _, c := range []client.Client{alice, admin} {
			for _, o := range []client.Object{w.derived, w.imported, w.slice} {
				Expect(c.Delete(ctx, o.DeepCopyObject().(client.Object))).To(MatchError(And(ContainSubstring("only Comity creates and deletes"), ContainSubstring(remedy))))
			}
			Expect(c.DeleteAllOf(ctx, &discoveryv1.EndpointSlice{}, client.InNamespace(w.ns), client.MatchingLabels(sliceManagedBy))).To(MatchError(ContainSubstring("only Comity")))
			Expect(c.DeleteAllOf(ctx, &mcsv1beta1.ServiceImport{}, client.InNamespace(w.ns))).To(MatchError(ContainSubstring("only Comity")))
		}
		before := []client.Object{w.derived, w.imported, w.slice}
		w.read(ctx)
		Expect([]client.Object{w.derived, w.imported, w.slice}).To(Equal(before))
	}, SpecTimeout(time.Minute))

	It("is changed and deleted by administrators who act as Comity", func(ctx SpecContext) {
		Expect(merge(ctx, agent, w.slice, patch{"endpoints": []patch{{"addresses": []string{"10.9.9.9"}}}})).To(Succeed())
		for _, o := range []client.Object{w.imported, w.slice, w.derived} {
			Expect(agent.Delete(ctx, o)).To(Succeed())
		}
	}, SpecTimeout(time.Minute))

	It("is deleted by the controllers of Kubernetes", func(ctx SpecContext) {
		Expect(as("system:serviceaccount:kube-system:namespace-controller", "system:masters").Delete(ctx, w.imported)).To(Succeed())
		Expect(as("system:serviceaccount:kube-system:generic-garbage-collector", "system:masters").Delete(ctx, w.slice)).To(Succeed())
		Expect(as("system:kube-controller-manager", "system:masters").Delete(ctx, w.derived)).To(Succeed())
	}, SpecTimeout(time.Minute))

	It("follows the exports as without policies", func(ctx SpecContext) {
		By("another list, while nothing else changes, other endpoints, other ports, another type, and no export")
		w.input.Frozen, w.input.List.Entries[0].Absent, w.input.List.Entries[0].Since = true, model.SourceMissing, w.input.List.Formed
		w.bring(ctx)
		for _, o := range []client.Object{w.derived, w.imported} {
			Expect(o.GetAnnotations()).To(HaveKeyWithValue(model.AnnotationList, w.input.List.String()))
		}
		w.input.Frozen = false
		w.input.Sources["b"][0].Endpoints[0].Addresses = []string{"10.9.0.2"}
		w.bring(ctx)
		Expect(w.slice.Endpoints[0].Addresses).To(Equal([]string{"10.9.0.2"}))
		ports := []mcsv1beta1.ServicePort{{Name: "http", Protocol: "TCP", Port: 8080}}
		w.input.Desired.Ports, w.input.Desired.Constituents[0].Ports, w.input.Desired.Constituents[0].Declared = ports, ports, ports
		w.bring(ctx)
		Expect(w.derived.Spec.Ports[0].Port).To(BeEquivalentTo(8080))
		w.input.Desired.Type = mcsv1beta1.Headless
		w.bring(ctx)
		Expect(w.derived.Spec.ClusterIP).To(Equal(corev1.ClusterIPNone))
		w.input.Desired = nil
		w.bring(ctx)
		Expect([]any{w.derived, w.slice, w.imported}).To(HaveEach(BeNil()))
	}, SpecTimeout(time.Minute))
})

var _ = Describe("objects of others", func() {
	It("are created, changed and deleted by others, whatever makes imports there", func(ctx SpecContext) {
		Expect(admin.Create(ctx, namespace("pipeline"))).To(Succeed())
		sveltos := map[string]string{"app.kubernetes.io/managed-by": "sveltos", discoveryv1.LabelManagedBy: "sveltos", model.LabelServiceName: "web"}
		for _, o := range []client.Object{
			service("pipeline", model.DerivedName("web"), sveltos), serviceImport("pipeline", "web", nil),
			slice("pipeline", model.DerivedName("web")+"-b", model.DerivedName("web"), sveltos),
		} {
			Expect(alice.Create(ctx, o)).To(Succeed())
			Expect(merge(ctx, alice, o, metadata("labels", patch{model.LabelServiceName: "other"}))).To(Succeed())
			Expect(alice.Delete(ctx, o)).To(Succeed())
		}
	}, SpecTimeout(time.Minute))

	It("do not get Comity's labels", func(ctx SpecContext) {
		Expect(admin.Create(ctx, namespace("forged"))).To(Succeed())
		for _, o := range []client.Object{service("forged", "derived-1", managedBy), serviceImport("forged", "web", managedBy), slice("forged", "derived-1-b", "derived-1", sliceManagedBy)} {
			Expect(admin.Create(ctx, o)).To(MatchError(And(ContainSubstring("only Comity creates and deletes"), ContainSubstring(remedy))))
		}
		plain, feeding := service("forged", "web", nil), slice("forged", "web-1", "web", nil)
		Expect(alice.Create(ctx, plain)).To(Succeed())
		Expect(alice.Create(ctx, feeding)).To(Succeed())
		Expect(merge(ctx, alice, plain, metadata("labels", patch{"app.kubernetes.io/managed-by": model.ManagedBy}))).To(MatchError(ContainSubstring("changed labels app.kubernetes.io/managed-by")))
		Expect(merge(ctx, alice, feeding, metadata("labels", patch{discoveryv1.LabelManagedBy: model.ManagedBy}))).To(MatchError(ContainSubstring("changed labels " + discoveryv1.LabelManagedBy)))

		By("nor one label after the other")
		copied := slice("forged", "derived-2-b", "", sliceManagedBy)
		Expect(alice.Create(ctx, copied)).To(Succeed())
		for _, c := range []client.Client{alice, admin} {
			Expect(merge(ctx, c, copied, metadata("labels", patch{discoveryv1.LabelServiceName: "derived-2"}))).To(MatchError(And(
				ContainSubstring("added label "+discoveryv1.LabelServiceName+": only Comity adds it"), ContainSubstring(remedy))))
		}
		Expect(merge(ctx, alice, copied, metadata("labels", patch{"team": "shop"}))).To(Succeed())
		Expect(alice.Delete(ctx, copied)).To(Succeed())
	}, SpecTimeout(time.Minute))

	It("that had Comity's labels before the policies stay their owners' to change and to delete", func(ctx SpecContext) {
		for _, o := range older {
			Expect(merge(ctx, alice, o, metadata("labels", patch{model.LabelServiceName: "other"}))).To(Succeed())
			Expect(alice.Delete(ctx, o)).To(Succeed())
		}
	}, SpecTimeout(time.Minute))

	It("copies in a hub are written by the accounts of members", func(ctx SpecContext) {
		Expect(admin.Create(ctx, namespace("comity-b"))).To(Succeed())
		member := as("system:serviceaccount:"+own+":member-b", "system:masters")
		published := slice("comity-b", "shop.web-1", "", sliceManagedBy)
		Expect(member.Create(ctx, published)).To(Succeed())
		Expect(merge(ctx, member, published, patch{"endpoints": []patch{}})).To(Succeed())
		Expect(member.Delete(ctx, published)).To(Succeed())
	}, SpecTimeout(time.Minute))
})

var _ = It("kubectl comity leave --purge removes what Comity imported, as Comity's account", func(ctx SpecContext) {
	w := importing(ctx)
	Expect(join.Purge(ctx, join.Cluster{ID: "a", Set: "set", RESTConfig: server}, join.Options{})).To(Succeed())
	w.read(ctx)
	Expect([]any{w.derived, w.slice, w.imported}).To(HaveEach(BeNil()))
}, SpecTimeout(time.Minute))
