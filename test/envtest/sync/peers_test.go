// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package sync

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/members"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
)

// peerCondition is a condition of a Peer: status, reason and message.
func (c *cluster) peerCondition(id model.ClusterID, typ string) func() string {
	return func() string {
		if found := read[exchangev1alpha1.Peer](c, "", string(id)); found != nil {
			if is := meta.FindStatusCondition(found.Status.Conditions, typ); is != nil {
				return string(is.Status) + "/" + is.Reason + ": " + is.Message
			}
		}
		return ""
	}
}

func unreachable(k *clientcmdapi.Config) { k.Clusters["peer"].Server = "https://127.0.0.1:1" }

// What is refused of a Peer, and which condition says so, is tested in sync/members and
// in test/envtest/peer. These specs are about what becomes of the imports.
var _ = Describe("a Peer", Serial, func() {
	It("that cannot be used harms no other one", func() {
		c := clusters["c"]
		bad := peer("d", "uid-d", []byte("very-secret-token: ["))
		c.create(bad...)
		DeferCleanup(func() { c.delete(bad...) })
		Eventually(c.peerCondition("d", exchangev1alpha1.PeerAccepted)).Should(And(HavePrefix("False/"+members.ReasonInvalidKubeconfig+": "), Not(ContainSubstring("very-secret"))))
		ns := newNamespace("a", "c")
		clusters["a"].create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1"), export(ns, "web"))
		Eventually(c.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
	})

	It("of which the Secret is rotated badly leaves the old connection in place", func() {
		a, b := clusters["a"], clusters["b"]
		ns := newNamespace("a", "b")
		good := kubeconfig(a)
		rotate := func(data []byte) {
			GinkgoHelper()
			secret := read[corev1.Secret](b, "comity-system", "peer-a")
			secret.Data["kubeconfig"] = data
			Expect(b.client.Update(ctx(), secret)).To(Succeed())
		}
		DeferCleanup(func() { rotate(good) })
		accepted := b.peerCondition("a", exchangev1alpha1.PeerAccepted)
		rotate([]byte("garbage"))
		Eventually(accepted).Should(HavePrefix("False/" + members.ReasonInvalidKubeconfig))
		rotate(kubeconfig(a, unreachable))
		Eventually(accepted).Should(HavePrefix("False/" + remote.ReasonUnreachable))
		a.create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1"), export(ns, "web"))
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))

		By("rotating to a good one, through which everything is read")
		rotate(append([]byte("# renewed\n"), good...))
		Eventually(accepted).Should(HavePrefix("True/"))
		Expect(b.backends(ns, "web")()).To(Equal([]string{"a/10.1.0.1"}))
	})

	It("that is absent keeps what was imported, and one that is removed takes exactly its cluster's objects with it", func() {
		ns := newNamespace("a", "b", "c")
		b := clusters["b"]
		for _, id := range []model.ClusterID{"a", "c"} {
			clusters[id].create(service(ns, "web"), endpoints(ns, "web", "web-"+string(id), "10.1.0.1"), export(ns, "web"))
		}
		clusters["a"].create(service(ns, "only-a"), endpoints(ns, "only-a", "only-a-1", "10.1.0.1"), export(ns, "only-a"))
		both := []string{"a/10.1.0.1", "c/10.1.0.1"}
		Eventually(b.backends(ns, "web")).Should(Equal(both))
		Eventually(b.backends(ns, "only-a")).Should(Equal([]string{"a/10.1.0.1"}))
		address := b.address(ns, "web")
		peerA := peer("a", clusters["a"].uid(), kubeconfig(clusters["a"]))
		DeferCleanup(func() { // for the other specs, if this one fails
			for _, o := range peerA {
				o.SetResourceVersion("")
				Expect(client.IgnoreAlreadyExists(b.client.Create(ctx(), o))).To(Succeed())
			}
		})

		b.quiet()

		By("deleting the Peer, its Secret too, and starting the agent again")
		b.delete(peerA...)
		Eventually(b.agent.peers.Members).Should(HaveLen(1))
		b.stop()
		b.start()
		b.looked(ns, "web")
		Eventually(b.condition(ns, "web", "Frozen")).Should(And(HavePrefix("True/NotRead"), ContainSubstring("there is no Peer a"), ContainSubstring("kubectl comity leave --id a")))
		Consistently(b.backends(ns, "web")).Should(Equal(both))
		Expect(b.backends(ns, "only-a")()).To(Equal([]string{"a/10.1.0.1"}))
		Expect(b.agent.writer.written()).NotTo(ContainElement(Or(ContainSubstring(" "+ns+"/"), HaveSuffix("."+ns))))

		By("removing it: GitOps may create a Peer that is removed")
		removed := &exchangev1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: exchangev1alpha1.PeerSpec{Removed: true}}
		b.create(removed)
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"c/10.1.0.1"}))
		Eventually(func() *mcsv1beta1.ServiceImport { return b.serviceImport(ns, "only-a") }).Should(BeNil())
		Eventually(b.peerCondition("a", exchangev1alpha1.PeerRemoved)).Should(HavePrefix("True/Removed"))

		By("joining it again")
		b.delete(removed)
		b.create(peer("a", clusters["a"].uid(), kubeconfig(clusters["a"]))...)
		b.awaitPeers()
		Eventually(b.backends(ns, "web")).Should(Equal(both))
		Expect(b.address(ns, "web")).To(Equal(address), "the clusterset IP never changes")
	})
})

var _ = Describe("an exchange", func() {
	It("that is missing is reported, and leaves the rest of the audience served", Serial, func() {
		a := clusters["a"]
		later := peer("d", "uid-d", kubeconfig(clusters["a"], unreachable))
		a.create(later...)
		DeferCleanup(func() { a.delete(later...) })
		Eventually(a.agent.peers.Members).Should(ContainElement(HaveField("ID", model.ClusterID("d"))))
		ns := newNamespace("a", "b")
		key := types.NamespacedName{Namespace: ns, Name: "web"}
		exported := export(ns, "web", "b", "d")
		a.create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1"), exported)
		DeferCleanup(func() { a.delete(exported) }) // no other spec expects an export that names an unknown cluster
		Eventually(clusters["b"].backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
		Eventually(func() string {
			seen, _ := a.agent.running.Observe(key)
			return seen.Detail
		}).Should(And(ContainSubstring("comity-a-to-d"), ContainSubstring("kubectl comity join")))
		a.create(namespaced("comity-a-to-d", map[string]string{model.LabelExchangeFrom: "a", model.LabelExchangeTo: "d"}))
		Eventually(func() []string { return a.records(ns, "web") }).Should(ContainElement("record in comity-a-to-d"))
		Eventually(func() model.Publication {
			seen, _ := a.agent.running.Observe(key)
			return seen.Publication
		}).Should(Equal(model.Published))
	})

	It("of a peer is not believed", func() {
		a, b := clusters["a"], clusters["b"]
		hostile := &exchangev1alpha1.ExportRecord{
			ObjectMeta: metav1.ObjectMeta{Namespace: "comity-a", Name: "dns.kube-system"},
			Spec: exchangev1alpha1.ExportRecordSpec{
				Service:           exchangev1alpha1.ServiceReference{Namespace: "kube-system", Name: "dns"},
				ExportUID:         "1",
				ExportedAt:        metav1.Now(),
				ServiceProperties: model.ServiceProperties{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Port: 53}}},
			},
		}
		a.stop() // it would state at once that there is no such export
		a.create(hostile)
		DeferCleanup(func() {
			Expect(client.IgnoreNotFound(a.client.Delete(ctx(), hostile))).To(Succeed())
			a.start()
			a.awaitPeers()
		})
		Eventually(b.peerCondition("a", exchangev1alpha1.PeerRecordsValid)).Should(And(
			HavePrefix("False/"+model.ReasonInvalidRecord), ContainSubstring("dns.kube-system"), ContainSubstring("spec.service.namespace")))
		Consistently(func() []string { return b.ownedIn("kube-system") }).Should(BeEmpty())
	})
})
