// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// used are the endpoints of an import: address, and whether it is ready or the last resort.
// No Node has a zone here, so tiers are made of readiness.
func (c *cluster) used(namespace, name string) func() []string {
	return func() []string {
		out := []string{}
		for _, s := range c.derivedSlices(namespace, name) {
			for _, e := range s.Endpoints {
				state := "not ready"
				switch {
				case ptr.Deref(e.Conditions.Ready, true):
					state = "ready"
				case ptr.Deref(e.Conditions.Serving, false) && ptr.Deref(e.Conditions.Terminating, false):
					state = "last resort"
				}
				out = append(out, e.Addresses[0]+" "+state)
			}
		}
		slices.Sort(out)
		return out
	}
}

var _ = Describe("tiers", Serial, func() {
	It("decide by the labels of Peers here which cluster serves, and leave out those in none", func() {
		b := clusters["b"]
		ns := newNamespace("a", "b", "c")
		label := func(id model.ClusterID, region string) {
			GinkgoHelper()
			b.patch(&exchangev1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: string(id)}}, fmt.Sprintf(`{"metadata":{"labels":{"region":%s}}}`, region))
		}
		DeferCleanup(func() { label("a", "null"); label("c", "null") })
		label("a", `"eu"`)
		label("c", `"us"`)
		b.patch(annotated(ns, model.AnnotationTiers, `"region=eu; *"`))
		of := map[model.ClusterID]string{"a": "10.1.0.1", "c": "10.3.0.1"}
		for id, address := range of {
			clusters[id].create(service(ns, "web"), endpoints(ns, "web", "web-"+string(id), address), export(ns, "web"))
		}
		Eventually(b.used(ns, "web")).Should(Equal([]string{"10.1.0.1 ready", "10.3.0.1 last resort"}))

		By("the endpoint of the first tier going")
		published := endpoints(ns, "web", "web-a", "10.1.0.1")
		published.Endpoints[0].Conditions.Ready = ptr.To(false)
		Expect(clusters["a"].client.Update(ctx(), published)).To(Succeed())
		Eventually(b.used(ns, "web")).Should(Equal([]string{"10.1.0.1 not ready", "10.3.0.1 ready"}))

		By("another label on a Peer, and its return")
		label("a", `"us"`)
		label("c", `"eu"`)
		published.Endpoints[0].Conditions.Ready = ptr.To(true)
		Expect(clusters["a"].client.Update(ctx(), published)).To(Succeed())
		Eventually(b.used(ns, "web")).Should(Equal([]string{"10.1.0.1 last resort", "10.3.0.1 ready"}))

		By("a ServiceImport that allows one region")
		imported := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}}
		b.patch(imported, fmt.Sprintf(`{"metadata":{"annotations":{%q:"region=us; none"}}}`, model.AnnotationTiers))
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
		Eventually(b.used(ns, "web")).Should(Equal([]string{"10.1.0.1 ready"}))

		By("tiers that cannot be read, which change nothing")
		b.patch(imported, fmt.Sprintf(`{"metadata":{"annotations":{%q:"region=us"}}}`, model.AnnotationTiers))
		key := types.NamespacedName{Namespace: ns, Name: "web"}
		Eventually(b.problems(key)).Should(ConsistOf(model.ReasonInvalidAnnotation + " "))
		Consistently(b.used(ns, "web")).Should(Equal([]string{"10.1.0.1 ready"}))

		By("the annotation going")
		b.patch(imported, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, model.AnnotationTiers))
		Eventually(b.used(ns, "web")).Should(Equal([]string{"10.1.0.1 last resort", "10.3.0.1 ready"}))
	})
})
