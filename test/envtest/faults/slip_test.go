// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"maps"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/members"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
	"github.com/comity-mcs/comity/test/install"
)

// peerB is the Secret by which a reads b.
func peerB() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: join.PeerName("b")}}
}

// eventIn waits for an event of a on an object of Comity's namespace.
func eventIn(ctx context.Context, kind, name, reason string) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		var events eventsv1.EventList
		g.Expect(a.Client.List(ctx, &events, client.InNamespace(install.Namespace))).To(Succeed())
		g.Expect(events.Items).To(ContainElement(And(
			HaveField("Regarding.Kind", kind), HaveField("Regarding.Name", name), HaveField("Reason", reason))))
	}).Should(Succeed())
}

var _ = Describe("FAULT 27: a slip in what makes a cluster a member", func() {
	const ns = "slip"
	It("removes nothing, is named, and once corrected everything continues", func(ctx SpecContext) {
		healthy(ctx)
		for _, m := range []*clusterset.Member{a, b} {
			m.Create(ctx, clusterset.Namespace(ns))
		}
		for i := range 3 {
			exportOne(ctx, b, ns, fmt.Sprintf("web-%d", i), 8080, fmt.Sprintf("10.98.7.%d", i+1))
		}
		DeferCleanup(func(ctx SpecContext) { withdrawAll(ctx, ns) }, NodeTimeout(2*time.Minute))
		all := func() []string { return a.AllBackends(ctx, ns) }
		Eventually(ctx, all).Should(HaveLen(3))
		whole := all()
		labels := clusterset.Get(ctx, a, peerB()).Labels
		correct := func(s *corev1.Secret) { s.Labels = maps.Clone(labels) }
		DeferCleanup(func(ctx SpecContext) { // whatever of it was reached
			if a.Client.Get(ctx, client.ObjectKeyFromObject(peerB()), peerB()) == nil {
				clusterset.Change(ctx, a, peerB(), correct)
			}
			set.Join(ctx, "a", "b")
			a.Restart(ctx)
		}, NodeTimeout(time.Minute))
		kept := func(while string) {
			GinkgoHelper()
			Consistently(ctx, all, 4*time.Second).Should(Equal(whole), while)
		}
		next := 3
		continues := func() {
			GinkgoHelper()
			exportOne(ctx, b, ns, fmt.Sprintf("web-%d", next), 8080, fmt.Sprintf("10.98.7.%d", next+1))
			next++
			Eventually(ctx, all).Should(HaveLen(next))
			whole = all()
		}

		for reason, slip := range map[string]func(labels map[string]string){
			members.ReasonWrongClusterSet:  func(l map[string]string) { l[model.LabelClusterSet] += "x" },
			members.ReasonClusterIDChanged: func(l map[string]string) { l[model.LabelClusterID] = "bb" },
			members.ReasonInvalidClusterID: func(l map[string]string) { delete(l, model.LabelClusterID) },
		} {
			By("misspelling a label of the peer Secret: " + reason)
			clusterset.Change(ctx, a, peerB(), func(s *corev1.Secret) { slip(s.Labels) })
			eventIn(ctx, "Secret", "peer-b", reason)
			kept(reason)
			if reason != members.ReasonWrongClusterSet {
				a.Restart(ctx) // known by its name alone now
				kept(reason + " after a restart")
			}
			clusterset.Change(ctx, a, peerB(), correct)
			continues()
		}

		By("misspelling the clusterset of a, and starting its agent again")
		a.Restart(ctx, "--clusterset=misspelled")
		kept("our own set is misspelled")
		eventIn(ctx, "Secret", "peer-b", members.ReasonWrongClusterSet)
		a.Restart(ctx)
		continues()

		By("starting the agent of a with the id of b")
		// Both export this one, and a exports another to b alone.
		exportOne(ctx, a, ns, "web-0", 8080, "10.97.7.1")
		scoped := clusterset.Export(ns, "scoped")
		scoped.Annotations = map[string]string{model.AnnotationExportTo: "b"}
		a.Create(ctx, clusterset.Service(ns, "scoped"), clusterset.Endpoints(ns, "scoped", "scoped-x", 8080, "10.97.7.2"), scoped)
		Eventually(ctx, all).Should(HaveLen(len(whole) + 2))
		inB := func() []string { return b.AllBackends(ctx, ns) }
		whole = all()
		Eventually(ctx, inB).Should(Equal(whole))
		a.Restart(ctx, "--cluster-id=b")
		kept("a has the id of b")
		Expect(inB()).To(Equal(whole), "what a exports")
		eventIn(ctx, "Secret", "peer-b", members.ReasonOwnClusterID)
		a.Restart(ctx)
		kept("a has its id again")
		Expect(inB()).To(Equal(whole), "what a exports")
		for _, name := range []string{"web-0", "scoped"} {
			Expect(a.Client.Delete(ctx, clusterset.Export(ns, name))).To(Succeed())
		}
		Eventually(ctx, all).Should(HaveLen(next))
		whole = all()
		continues()

		By("deleting the Secret without the mark, and restarting")
		secret := clusterset.Get(ctx, a, peerB())
		Expect(a.Client.Delete(ctx, peerB())).To(Succeed())
		eventIn(ctx, "Namespace", install.Namespace, members.ReasonPeerSecretMissing)
		kept("the Secret is deleted")
		a.Restart(ctx)
		kept("after a restart")
		secret.ObjectMeta = metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name, Labels: secret.Labels, Annotations: secret.Annotations}
		a.Create(ctx, secret)
		continues()

		By("deleting it with the mark")
		mark := fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, model.AnnotationLeaving)
		Expect(a.Client.Patch(ctx, peerB(), client.RawPatch(types.MergePatchType, []byte(mark)))).To(Succeed())
		Expect(a.Client.Delete(ctx, peerB())).To(Succeed())
		Eventually(ctx, all).WithTimeout(10 * time.Second).Should(BeEmpty())
		set.Join(ctx, "a", "b")
		Eventually(ctx, all).Should(Equal(whole))
	}, SpecTimeout(6*time.Minute))
})
