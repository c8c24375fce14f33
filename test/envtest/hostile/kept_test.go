// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// bothExport makes an export of c, which decides, and then one of b that agrees with it.
func bothExport(ctx context.Context, key types.NamespacedName) (backends []string, objects []forged) {
	GinkgoHelper()
	for _, m := range []*member{victim, neighbor} {
		m.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace}})
	}
	neighbor.create(ctx, service(key.Namespace, key.Name), endpoints(key.Namespace, key.Name, neighbor.address(230)), serviceExport(key.Namespace, key.Name))
	backends = []string{"c/" + neighbor.address(230)}
	Eventually(victim.backends(key.Namespace, key.Name)).WithContext(ctx).Should(Equal(backends))
	younger := set(time.Now().UTC().Add(time.Minute).Format(time.RFC3339), "spec", "exportedAt") // also by whole seconds
	objects = []forged{record(key, younger), slice(key, key.Name+"-b", []string{attacker.address(230)})}
	put(ctx, objects...)
	backends = []string{"b/" + attacker.address(230), backends[0]}
	Eventually(victim.backends(key.Namespace, key.Name)).WithContext(ctx).Should(Equal(backends))
	return backends, objects
}

var _ = Describe("A member of which a namespace is not accepted any more", func() {
	accept := func(ctx SpecContext, list *[]string) {
		GinkgoHelper()
		patchPeer(ctx, func(s *exchangev1alpha1.PeerSpec) { s.AcceptedNamespaces = list })
	}
	It("loses what was imported of it, and the importing cluster says why", func(ctx SpecContext) {
		shop, alone := types.NamespacedName{Namespace: "unaccepted", Name: "web"}, types.NamespacedName{Namespace: "unaccepted", Name: "alone"}
		backends, objects := bothExport(ctx, shop)
		others := []forged{record(alone), slice(alone, "alone-b", []string{attacker.address(231)})}
		put(ctx, others...)
		DeferCleanup(func(ctx SpecContext) {
			Expect(neighbor.client.Delete(ctx, serviceExport(shop.Namespace, shop.Name))).To(Succeed())
			accept(ctx, nil)
			retreat(ctx, objects, shop)
			retreat(ctx, others, alone)
		})
		Eventually(victim.backends(alone.Namespace, alone.Name)).WithContext(ctx).Should(HaveLen(1))
		accept(ctx, &[]string{honest, "no-other"})
		Eventually(victim.backends(shop.Namespace, shop.Name)).WithContext(ctx).Should(Equal(backends[1:]))
		Eventually(made(alone.Namespace, alone.Name)).WithContext(ctx).Should(ConsistOf(HavePrefix("*v1.Service derived-")), "what keeps its address")
		why := And(ContainSubstring(model.ReasonNamespaceNotAccepted), ContainSubstring("Peer b, spec.acceptedNamespaces: it does not list Namespace unaccepted"))
		Eventually(told(shop.Namespace, shop.Name)).WithContext(ctx).Should(ContainElements(
			And(HavePrefix("condition Ready=True/Ready"), why), And(HavePrefix("event"), why)))
		Eventually(told(alone.Namespace, alone.Name)).WithContext(ctx).Should(ContainElement(And(HavePrefix("event"), why)))
	})
})

var _ = Describe("A member that joins the export of another and then withholds its identity", func() {
	It("does not keep the import from following the export that decides", func(ctx SpecContext) {
		key := types.NamespacedName{Namespace: "withheld", Name: "web"}
		backends, objects := bothExport(ctx, key)
		DeferCleanup(func(ctx SpecContext) {
			Expect(neighbor.client.Delete(ctx, serviceExport(key.Namespace, key.Name))).To(Succeed())
			retreat(ctx, objects, key)
		})
		put(ctx, record(key, set(nil, "spec", "namespace")))
		Eventually(told(key.Namespace, key.Name)).WithContext(ctx).Should(ContainElement(And(
			ContainSubstring("condition Ready=True/Ready"), ContainSubstring(model.ReasonNamespaceUnknown+" in b"), ContainSubstring("--publish-namespaces"))))

		changed := &corev1.Service{}
		Expect(neighbor.client.Get(ctx, key, changed)).To(Succeed())
		changed.Spec.Ports[0].Port = 8080
		Expect(neighbor.client.Update(ctx, changed)).To(Succeed())
		ports := func(g Gomega, ctx context.Context) []int32 {
			imported, derived := &mcsv1beta1.ServiceImport{}, &corev1.Service{}
			g.Expect(victim.client.Get(ctx, key, imported)).To(Succeed())
			g.Expect(victim.client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: imported.Annotations[model.AnnotationDerivedName]}, derived)).To(Succeed())
			return []int32{imported.Spec.Ports[0].Port, derived.Spec.Ports[0].Port}
		}
		Eventually(ports).WithContext(ctx).Should(Equal([]int32{8080, 8080}))
		Consistently(victim.backends(key.Namespace, key.Name)).WithContext(ctx).WithTimeout(quiet).Should(Equal(backends))
	})
})
