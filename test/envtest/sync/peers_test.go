// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package sync

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/members"
	"github.com/comity-mcs/comity/sync/model"
)

// eventsOn lists what was said of a Secret, reason and note in one line.
func (c *cluster) eventsOn(secret string) func() []string {
	return func() []string {
		var list eventsv1.EventList
		Expect(c.client.List(ctx(), &list, client.InNamespace("comity-system"))).To(Succeed())
		out := []string{}
		for _, e := range list.Items {
			if e.Regarding.Kind == "Secret" && e.Regarding.Name == secret {
				out = append(out, e.Reason+": "+e.Note)
			}
		}
		return out
	}
}

var _ = Describe("a peer Secret", func() {
	const secretText = "very-secret-token"

	// Each fault is put beside the good Secrets of cluster c and must stay without effect on them.
	DescribeTable("that cannot be used is named in one event and harms no other peer",
		func(id string, data func() []byte, reason, says string) {
			c := clusters["c"]
			bad := peerSecret("bad", id, data())
			c.create(bad)
			DeferCleanup(func() { c.delete(bad) })
			Eventually(c.eventsOn("bad")).Should(ContainElement(And(HavePrefix(reason+": "), ContainSubstring(says), ContainSubstring("remedy: "))))

			ns := newNamespace("a", "c")
			clusters["a"].create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1"), export(ns, "web"))
			Eventually(c.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
			Expect(c.eventsOn("bad")()).To(HaveEach(Not(ContainSubstring(secretText))), "no credential in an event")
			Consistently(c.eventsOn("bad")).Should(HaveLen(1))
			// The events of other specs on other Secrets of this name go with it.
			Expect(c.client.DeleteAllOf(ctx(), &eventsv1.Event{}, client.InNamespace("comity-system"))).To(Succeed())
		},
		Entry("garbage", "d", func() []byte { return []byte(secretText + ": [") }, members.ReasonInvalidKubeconfig, "key kubeconfig"),
		Entry("nothing", "d", func() []byte { return nil }, members.ReasonInvalidKubeconfig, "missing or empty"),
		Entry("an exec plugin", "d", func() []byte {
			return kubeconfig(clusters["a"], func(k *clientcmdapi.Config) {
				k.AuthInfos["peer"].Exec = &clientcmdapi.ExecConfig{Command: "/bin/sh", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: "Never"}
			})
		}, members.ReasonInvalidKubeconfig, "users.user.exec"),
		Entry("a file path", "d", func() []byte {
			return kubeconfig(clusters["a"], func(k *clientcmdapi.Config) {
				k.AuthInfos["peer"].TokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token"
			})
		}, members.ReasonInvalidKubeconfig, "users.user.tokenFile"),
		Entry("a duplicate id", "a", func() []byte { return kubeconfig(clusters["b"]) }, members.ReasonDuplicateClusterID, "older Secret peer-a"),
		Entry("our own id", "c", func() []byte { return kubeconfig(clusters["a"]) }, members.ReasonOwnClusterID, "own id"),
		Entry("an id that is no RFC 1123 label", "Cluster_D", func() []byte { return kubeconfig(clusters["a"]) }, members.ReasonInvalidClusterID, "RFC 1123"),
		Entry("an unreachable server", "d", func() []byte {
			return kubeconfig(clusters["a"], func(k *clientcmdapi.Config) { k.Clusters["peer"].Server = "https://127.0.0.1:1" })
		}, members.ReasonUnreachable, "cannot be reached"),
		Entry("a server of another cluster", "d", func() []byte { return kubeconfig(clusters["a"]) }, members.ReasonMemberUnverified, "MemberRecord comity-d/d"),
	)

	It("of another clusterset is not read, and that is reported", func() {
		c := clusters["c"]
		other := peerSecret("other-set", "e", kubeconfig(clusters["a"]))
		other.Labels[model.LabelClusterSet] = "staging"
		c.create(other)
		DeferCleanup(func() { c.delete(other) })
		Eventually(c.eventsOn("other-set")).Should(ContainElement(HavePrefix(members.ReasonWrongClusterSet)))
		Expect(c.agent.peers.Members()).To(ContainElement(And(HaveField("ID", model.ClusterID("e")), HaveField("Synced", false))))
	})

	It("that is rotated badly leaves the old connection in place", func() {
		b := clusters["b"]
		ns := newNamespace("a", "b")
		secret := read[corev1.Secret](b, "comity-system", "peer-a")
		good := secret.Data["kubeconfig"]
		rotate := func(data []byte) {
			GinkgoHelper()
			secret = read[corev1.Secret](b, "comity-system", "peer-a")
			secret.Data["kubeconfig"] = data
			Expect(b.client.Update(ctx(), secret)).To(Succeed())
		}
		DeferCleanup(func() { rotate(good) })
		rotate([]byte("garbage"))
		Eventually(b.eventsOn("peer-a")).Should(ContainElement(HavePrefix(members.ReasonInvalidKubeconfig)))
		rotate(kubeconfig(clusters["a"], func(k *clientcmdapi.Config) { k.Clusters["peer"].Server = "https://127.0.0.1:1" }))
		Eventually(b.eventsOn("peer-a")).Should(ContainElement(HavePrefix(members.ReasonUnreachable)))

		clusters["a"].create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1"), export(ns, "web"))
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))

		By("rotating to a good one, through which everything is read")
		rotate(append([]byte("# renewed\n"), good...))
		Eventually(b.agent.peers.States).Should(ContainElement(And(HaveField("ID", model.ClusterID("a")), HaveField("Reason", ""), HaveField("Synced", true))))
		Eventually(b.eventsOn("peer-a")).Should(ContainElement(HavePrefix(members.ReasonConnected)))
		Expect(b.backends(ns, "web")()).To(Equal([]string{"a/10.1.0.1"}))
	})

	It("that is deleted takes exactly its cluster's objects with it", func() {
		ns := newNamespace("a", "b", "c")
		b := clusters["b"]
		for _, id := range []model.ClusterID{"a", "c"} {
			clusters[id].create(service(ns, "web"), endpoints(ns, "web", "web-"+string(id), "10.1.0.1"), export(ns, "web"))
		}
		clusters["a"].create(service(ns, "only-a"), endpoints(ns, "only-a", "only-a-1", "10.1.0.1"), export(ns, "only-a"))
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1", "c/10.1.0.1"}))
		Eventually(b.backends(ns, "only-a")).Should(Equal([]string{"a/10.1.0.1"}))
		address := read[corev1.Service](b, ns, model.DerivedName("web")).Spec.ClusterIP

		secret := read[corev1.Secret](b, "comity-system", "peer-a")
		b.delete(secret)
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"c/10.1.0.1"}))
		Eventually(func() *mcsv1beta1.ServiceImport { return b.serviceImport(ns, "only-a") }).Should(BeNil())

		b.create(peerSecret("peer-a", "a", secret.Data["kubeconfig"]))
		b.awaitPeers()
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1", "c/10.1.0.1"}))
		Expect(read[corev1.Service](b, ns, model.DerivedName("web")).Spec.ClusterIP).To(Equal(address), "the clusterset IP never changes")
	})
})

var _ = Describe("an exchange", func() {
	It("that is missing is told, and leaves the rest of the audience served", func() {
		a := clusters["a"]
		later := peerSecret("peer-d", "d", kubeconfig(clusters["a"], func(k *clientcmdapi.Config) { k.Clusters["peer"].Server = "https://127.0.0.1:1" }))
		a.create(later)
		DeferCleanup(func() { a.delete(later) })
		Eventually(a.agent.peers.Members).Should(ContainElement(HaveField("ID", model.ClusterID("d"))))
		ns := newNamespace("a", "b")
		key := types.NamespacedName{Namespace: ns, Name: "web"}
		a.create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1"), export(ns, "web", "b", "d"))
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
				Service: exchangev1alpha1.ServiceReference{Namespace: "kube-system", Name: "dns"}, ExportUID: "1", ExportedAt: metav1.Now(),
				Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Port: 53}},
			},
		}
		a.create(hostile)
		DeferCleanup(func() { a.delete(hostile) })
		Eventually(b.eventsOn("peer-a")).Should(ContainElement(And(HavePrefix("InvalidRecord: "), ContainSubstring("dns.kube-system"), ContainSubstring("spec.service.namespace"))))
		Consistently(func() []string { return b.ownedIn("kube-system") }).Should(BeEmpty())
	})
})
