// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
)

const user = client.FieldOwner("somebody")

var _ = Describe("FAULT 23: others in the namespaces of users", func() {
	It("objects of others under Comity's names and labels stay as they are, and are reported", func(ctx SpecContext) {
		const ns = "foreign"
		setUp(ctx, ns)
		theirs := foreign(ns)
		a.Create(ctx, theirs...)
		DeferCleanup(func(ctx SpecContext) {
			for _, o := range theirs {
				Expect(a.Client.Delete(ctx, o)).To(Succeed())
			}
		})
		before := contents(ctx, theirs)
		from := time.Now()
		exportOne(ctx, b, ns, "web", 8080, "10.97.0.1")
		exportOne(ctx, b, ns, "taken", 8080, "10.97.0.2")
		By("importing what has another name left")
		Eventually(ctx, a.Backends(ns, "taken")).Should(ContainElement("b/10.97.0.2"))
		Expect(a.Derived(ctx, ns, "taken").Name).To(Equal(model.AlternateDerivedName("taken")))
		Eventually(ctx, a.ImportCondition(ns, "taken", "Ready")).Should(And(HavePrefix("True/"), ContainSubstring(model.ReasonNameTaken)))
		By("importing nothing under a foreign ServiceImport")
		Eventually(ctx, b.ExportCondition(ns, "web", "Available")).Should(And(HavePrefix("False/ForeignImport: "), ContainSubstring(" a ")))
		withdraw(ctx, ns, "web", "taken")
		Eventually(ctx, a.Backends(ns, "taken")).Should(BeEmpty())
		clusterset.AwaitQuiet(ctx, a, b)
		Expect(contents(ctx, theirs)).To(Equal(before), "after the exports are gone")
		for _, w := range a.AgentWrites(from) {
			for _, o := range theirs {
				Expect(w.Namespace+"/"+w.Name).NotTo(Equal(o.GetNamespace()+"/"+o.GetName()), "I1: %v", w)
			}
		}
	}, SpecTimeout(2*time.Minute))

	It("edits of derived objects are put right, and deletions too", func(ctx SpecContext) {
		const ns = "edits"
		setUp(ctx, ns)
		exportOne(ctx, b, ns, "web", 8080, "10.97.1.1")
		Eventually(ctx, a.Backends(ns, "web")).Should(Equal([]string{"b/10.97.1.1"}))
		Eventually(ctx, a.ImportCondition(ns, "web", "Ready")).Should(HavePrefix("True/"))
		derived, imported, slice := a.Derived(ctx, ns, "web"), clusterset.Get(ctx, a, clusterset.Import(ns, "web")), a.Slices(ctx, ns, "web")[0]

		clusterset.Change(ctx, a, derived.DeepCopy(), func(s *corev1.Service) {
			s.Spec.Ports[0].Port, s.Spec.SessionAffinity = 81, corev1.ServiceAffinityClientIP
		})
		clusterset.Change(ctx, a, imported.DeepCopy(), func(i *mcsv1beta1.ServiceImport) { i.Spec.Ports[0].Port = 82 })
		clusterset.Change(ctx, a, slice.DeepCopy(), func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"10.97.1.99"} })
		asBefore := func(g Gomega) {
			service := a.Derived(ctx, ns, "web")
			g.Expect(service.Spec.Ports).To(Equal(derived.Spec.Ports))
			g.Expect(service.Spec.SessionAffinity).To(Equal(derived.Spec.SessionAffinity))
			g.Expect(service.UID).To(Equal(derived.UID))
			g.Expect(clusterset.Get(ctx, a, clusterset.Import(ns, "web")).Spec).To(Equal(imported.Spec))
			g.Expect(a.Backends(ns, "web")(g, ctx)).To(Equal([]string{"b/10.97.1.1"}))
		}
		Eventually(ctx, asBefore).Should(Succeed())

		By("deleting a slice")
		Expect(a.Client.Delete(ctx, &slice)).To(Succeed())
		Eventually(ctx, asBefore).Should(Succeed())
	}, SpecTimeout(2*time.Minute))

	It("who changes the same object back again and again is answered more rarely, and named", func(ctx SpecContext) {
		const ns = "war"
		setUp(ctx, ns)
		exportOne(ctx, b, ns, "web", 8080, "10.97.2.1")
		Eventually(ctx, a.Backends(ns, "web")).Should(Equal([]string{"b/10.97.2.1"}))
		from, fought := time.Now(), a.Derived(ctx, ns, "web").Name
		fights := func(g Gomega) {
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fought}}
			g.Expect(a.Client.Get(ctx, client.ObjectKeyFromObject(service), service)).To(Succeed())
			if service.Spec.Ports[0].Port != 81 {
				service.Spec.Ports[0].Port = 81
				_ = a.Client.Update(ctx, service, user) // the next round tries again
			}
		}
		ready := a.ImportCondition(ns, "web", "Ready")
		Eventually(ctx, func(g Gomega) string { fights(g); return ready(g, ctx) }).Should(
			And(ContainSubstring("Contested"), ContainSubstring(fought), ContainSubstring(`"somebody"`)))
		By("fighting on")
		answers := func() (count int) {
			for _, w := range a.AgentWrites(from) {
				if w.Namespace == ns && w.Name == fought && w.Code < 300 {
					count++
				}
			}
			return count
		}
		before := answers()
		Consistently(ctx, func(g Gomega) int {
			fights(g)
			return answers()
		}, 4*time.Second, 100*time.Millisecond).Should(BeNumerically("<=", before+6), "a port that is put right takes two writes, and would be 40 times")
		By("giving up")
		Eventually(ctx, func() int32 { return a.Derived(ctx, ns, "web").Spec.Ports[0].Port }).Should(BeEquivalentTo(80))
	}, SpecTimeout(2*time.Minute))
})

// foreign are objects that look like Comity's and that somebody else made: a
// ServiceImport, and what has the name of a derived Service or the labels of its slices.
func foreign(ns string) []client.Object {
	service := clusterset.Service(ns, model.DerivedName("taken"))
	service.Labels = map[string]string{
		model.LabelServiceName: "taken", model.LabelServiceImported: "true", "app.kubernetes.io/managed-by": model.ManagedBy,
	}
	slice := clusterset.Endpoints(ns, model.DerivedName("taken"), "theirs", 8080, "10.97.0.99")
	slice.Labels[model.LabelServiceName], slice.Labels[model.LabelSourceCluster] = "taken", "b"
	slice.Labels[discoveryv1.LabelManagedBy] = "somebody"
	imported := clusterset.Import(ns, "web")
	imported.Labels = map[string]string{model.LabelServiceName: "web", "app.kubernetes.io/managed-by": model.ManagedBy}
	imported.Annotations = map[string]string{model.AnnotationDerivedName: model.DerivedName("web")}
	imported.Spec = mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, IPs: []string{"10.201.254.1"}, Ports: []mcsv1beta1.ServicePort{{Port: 81}}}
	return []client.Object{service, slice, imported}
}

// contents are the objects as they are, but for the status and who manages it.
func contents(ctx context.Context, objects []client.Object) []client.Object {
	GinkgoHelper()
	var out []client.Object
	for _, o := range objects {
		now := clusterset.Get(ctx, a, o.DeepCopyObject().(client.Object))
		if imported, is := now.(*mcsv1beta1.ServiceImport); is {
			imported.Status, imported.ResourceVersion, imported.ManagedFields = mcsv1beta1.ServiceImportStatus{}, "", nil
		}
		out = append(out, now)
	}
	return out
}

// withdraw withdraws exports of b.
func withdraw(ctx context.Context, ns string, names ...string) {
	GinkgoHelper()
	for _, name := range names {
		Expect(b.Client.Delete(ctx, clusterset.Export(ns, name))).To(Succeed())
	}
}
