// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/config/crd"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/members"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
	"github.com/comity-mcs/comity/test/clusters"
)

// haveNoMember is met while b is no member.
func haveNoMember() bool { return member("b")().ID == "" }

// isRead awaits that b is read again, with all that it exports.
func isRead(key types.NamespacedName) {
	GinkgoHelper()
	Eventually(member("b")).Should(haveSynced)
	Eventually(exports(key)).Should(HaveLen(1))
	Eventually(condition("b", "Accepted")).Should(HavePrefix("True Accepted"))
	Eventually(condition("b", "Connected")).Should(HavePrefix("True Connected"))
}

var _ = Describe("a Peer", Ordered, func() {
	var key types.NamespacedName

	BeforeAll(func() {
		key = here.export("b", "of-a-peer")
		Eventually(exports(key)).Should(HaveLen(1))
	})
	AfterEach(func() {
		if err := here.client.Create(ctx(), peer("b")); err != nil {
			Expect(apierrors.IsAlreadyExists(err)).To(BeTrue(), "%v", err)
			describe("b", func(p *exchangev1alpha1.Peer) { p.Finalizers, p.Labels, p.Spec = nil, nil, peer("b").Spec })
		}
		isRead(key)
	})

	DescribeTable("FAULT 27: that is wrong is a member that is not read, and says why", func(change func(*exchangev1alpha1.Peer), reason, words string) {
		describe("b", change)
		Eventually(member("b")).Should(HaveField("Synced", false))
		Expect(member("b")().ID).To(Equal(model.ClusterID("b")))
		Eventually(condition("b", "Accepted")).Should(And(HavePrefix("False "+reason), ContainSubstring(words), ContainSubstring("remedy: ")))
		Expect(condition("b", "Connected")()).To(HavePrefix("False " + reason))
		Eventually(eventsOn("b")).Should(ContainElement(HavePrefix(reason)))
		Consistently(member("b")).Should(And(HaveField("ID", model.ClusterID("b")), HaveField("Synced", false)))
		Expect(peers.Removed()).To(BeEmpty())
	},
		Entry("UID", func(p *exchangev1alpha1.Peer) { p.Spec.ClusterUID = "uid-elsewhere" }, remote.ReasonClusterIDReused, "expected uid-elsewhere"),
		Entry("Secret", func(p *exchangev1alpha1.Peer) { p.Spec.KubeconfigSecret = "pere-b" }, members.ReasonSecretMissing, "Secret comity-system/pere-b does not exist"),
		Entry("clusterset", func(p *exchangev1alpha1.Peer) { p.Spec.ClusterSet = "staging" }, members.ReasonWrongClusterSet, `"staging"`),
	)

	It("FAULT 41: whose Secret is deleted is a member that is not read, and is read again with the Secret", func() {
		secret := peerSecret("peer-b", kubeconfig(toB.address()))
		here.delete(secret)
		Eventually(condition("b", "Accepted")).Should(HavePrefix("False " + members.ReasonSecretMissing))
		Expect(member("b")()).To(And(HaveField("ID", model.ClusterID("b")), HaveField("Synced", false)))
		Expect(peers.Removed()).To(BeEmpty())
		secret.ResourceVersion, secret.UID = "", ""
		here.create(secret)
		isRead(key)
	})

	It("FAULT 41: that is deleted is no member and not removed, and is read again once it is there", func() {
		here.delete(peer("b"))
		Eventually(haveNoMember).Should(BeTrue())
		Consistently(func() []model.ClusterID { return peers.Removed() }).Should(BeEmpty())
		Expect(member("c")()).To(And(haveConnected, haveSynced))
		here.create(peer("b"))
		isRead(key)
	})

	It("that is terminating is no member and not removed, whatever its spec says", func() {
		describe("b", func(p *exchangev1alpha1.Peer) { p.Finalizers = []string{"example.com/kept"} })
		here.delete(peer("b"))
		Eventually(haveNoMember).Should(BeTrue())
		describe("b", func(p *exchangev1alpha1.Peer) { p.Spec.Removed = true })
		Consistently(func() []model.ClusterID { return peers.Removed() }).Should(BeEmpty())
		describe("b", func(p *exchangev1alpha1.Peer) { p.Finalizers = nil })
		here.create(peer("b"))
		isRead(key)
	})

	It("that is removed is listed as removed, and says when nothing is imported any more", func() {
		imports.list("b")
		describe("b", func(p *exchangev1alpha1.Peer) { p.Spec.Removed = true })
		Eventually(peers.Removed).Should(ConsistOf(model.ClusterID("b")))
		Expect(haveNoMember()).To(BeTrue())
		Eventually(condition("b", "Removed")).Should(HavePrefix("False " + members.ReasonRemoving))
		imports.list("")
		Eventually(condition("b", "Removed")).Should(HavePrefix("True Removed"))
		Expect(stored("b").Status.Conditions).To(HaveLen(1))
		describe("b", func(p *exchangev1alpha1.Peer) { p.Spec.Removed = false })
		isRead(key)
		Eventually(condition("b", "Removed")).Should(BeEmpty())
	})

	It("FAULT 49: says once what is missing and waits, with the commands", func() {
		imports.set("b", model.ImportCounts{Missing: 60, FirstMissing: key, Waiting: 1000, FirstWaiting: key})
		DeferCleanup(imports.set, model.ClusterID("b"), model.ImportCounts{})
		Eventually(condition("b", "Complete")).Should(And(HavePrefix("False "+model.ReasonMissing), ContainSubstring("kubectl comity confirm missing b"),
			ContainSubstring("kubectl comity confirm takeover --all --from b")))
		Expect(stored("b").Status.Exports).To(And(HaveField("Missing", int32(60)), HaveField("Waiting", int32(1000))))
		Eventually(eventsOn("b")).Should(ContainElement(And(HavePrefix(model.ReasonMissing), ContainSubstring("kubectl comity confirm takeover"))))
		imports.set("b", model.ImportCounts{})
		Eventually(condition("b", "Complete")).Should(HavePrefix("True Complete"))
	})

	It("has its labels seen, and its status is written on transitions only", func() {
		describe("b", func(p *exchangev1alpha1.Peer) { p.Labels = map[string]string{"tier": "front"} })
		Eventually(member("b")).Should(HaveField("Labels", HaveKeyWithValue("tier", "front")))
		Eventually(func() *metav1.Time { return stored("b").Status.LastHeartbeat }).ShouldNot(BeNil())
		settled := 3 * statusInterval
		var writes int64
		Eventually(func() bool {
			before := statusWrites.Load()
			time.Sleep(settled)
			writes = statusWrites.Load()
			return writes == before
		}).Should(BeTrue())
		Consistently(statusWrites.Load).WithTimeout(6*heartbeat).Should(Equal(writes), "nothing is written for a heartbeat")
		count := stored("b").Status.Exports.Read
		added := here.export("b", "counted")
		Eventually(exports(added)).Should(HaveLen(1))
		Eventually(func() int32 { return stored("b").Status.Exports.Read }).Should(Equal(count + 1))
		Expect(statusWrites.Load()).To(Equal(writes + 1))
	})

	It("says of a record that is not valid, for as long as there is one", func() {
		bad := exportRecord("b", "bad")
		bad.Spec.Service.Name = "another"
		here.create(bad)
		Eventually(condition("b", "RecordsValid")).Should(And(HavePrefix("False InvalidRecord"), ContainSubstring("bad")))
		Expect(stored("b").Status.Exports.Refused).To(Equal(int32(1)))
		here.delete(bad)
		Eventually(condition("b", "RecordsValid")).Should(HavePrefix("True RecordsValid"))
	})
})

var _ = Describe("the schema of Peers", func() {
	DescribeTable("refuses", func(change func(*exchangev1alpha1.Peer), words string) {
		err := here.client.Create(ctx(), peer("x", change), client.DryRunAll)
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring(words)))
	},
		Entry("a range that is none", func(p *exchangev1alpha1.Peer) { p.Spec.AcceptedCIDRs = []string{"10.1.0.0"} }, "expected address ranges"),
		Entry("a range with host bits", func(p *exchangev1alpha1.Peer) { p.Spec.AcceptedCIDRs = []string{"10.1.0.0/16", "10.1.0.1/16"} }, "expected address ranges"),
		Entry("an IPv6 range with host bits", func(p *exchangev1alpha1.Peer) { p.Spec.AcceptedCIDRs = []string{"fd00:1::1/48"} }, "expected address ranges"),
		Entry("an IPv4 range in IPv6", func(p *exchangev1alpha1.Peer) { p.Spec.AcceptedCIDRs = []string{"::ffff:10.1.0.0/112"} }, "expected address ranges"),
		Entry("a namespace with a dot", func(p *exchangev1alpha1.Peer) { p.Spec.AcceptedNamespaces = &[]string{"a.b"} }, "acceptedNamespaces"),
		Entry("an empty namespace", func(p *exchangev1alpha1.Peer) { p.Spec.AcceptedNamespaces = &[]string{""} }, "acceptedNamespaces"),
		Entry("a name with a dot", func(p *exchangev1alpha1.Peer) { p.Name = "b.c" }, "metadata.name is the id of the cluster"),
		Entry("a long name", func(p *exchangev1alpha1.Peer) { p.Name = strings.Repeat("b", 64) }, "metadata.name is the id of the cluster"),
		Entry("no UID", func(p *exchangev1alpha1.Peer) { p.Spec.ClusterUID = "" }, "clusterUID"),
		Entry("no Secret", func(p *exchangev1alpha1.Peer) { p.Spec.KubeconfigSecret = "" }, "kubeconfigSecret"),
		Entry("no clusterset", func(p *exchangev1alpha1.Peer) { p.Spec.ClusterSet = "" }, "clusterset"),
	)

	It("accepts a Peer that is only removed", func() {
		Expect(here.client.Create(ctx(), peer("x", func(p *exchangev1alpha1.Peer) { p.Spec = exchangev1alpha1.PeerSpec{Removed: true} }), client.DryRunAll)).To(Succeed())
	})
	It("accepts an empty list of namespaces", func() {
		Expect(here.client.Create(ctx(), peer("x", func(p *exchangev1alpha1.Peer) { p.Spec.AcceptedNamespaces = &[]string{} }), client.DryRunAll)).To(Succeed())
	})
})

var _ = Describe("a Peer with the id of this cluster", func() {
	It("is no member, and claims the id if it names another cluster", func() {
		own := peer("a", func(p *exchangev1alpha1.Peer) { p.Spec.ClusterUID = "uid-elsewhere" })
		here.create(own)
		DeferCleanup(func() { here.delete(own) })
		Eventually(peers.OwnIDClaim).ShouldNot(BeEmpty())
		Eventually(condition("a", "Accepted")).Should(HavePrefix("False " + members.ReasonOwnClusterID))
		Expect(member("a")().ID).To(BeEmpty())
		describe("a", func(p *exchangev1alpha1.Peer) { p.Spec.ClusterUID = "uid-a" })
		Eventually(peers.OwnIDClaim).Should(BeEmpty())
	})
})

var _ = Describe("FAULT 36: the definition of Peers", func() {
	const name = "peers.exchange.comity.dev"
	apply := func() {
		GinkgoHelper()
		manifests, err := clusters.Files(crd.FS)
		Expect(err).NotTo(HaveOccurred())
		for _, manifest := range manifests {
			objects, err := clusters.Decode(manifest)
			Expect(err).NotTo(HaveOccurred())
			if objects[0].GetName() == name {
				Expect(clusters.Apply(ctx(), here.config, manifest)).To(Succeed())
			}
		}
		Eventually(func() error { return here.client.List(ctx(), &exchangev1alpha1.PeerList{}) }).Should(Succeed())
	}

	It("takes nothing with it but the members, is not missed at a start, and all is read once it is back", func() {
		key := here.export("b", "defined")
		Eventually(exports(key)).Should(HaveLen(1))
		DeferCleanup(func() {
			apply()
			for _, id := range []string{"b", "c"} {
				if err := here.client.Create(ctx(), peer(id)); !apierrors.IsAlreadyExists(err) {
					Expect(err).NotTo(HaveOccurred())
				}
			}
			Eventually(peers.Members).Should(And(HaveLen(2), HaveEach(haveSynced)))
		})
		definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
		here.delete(definition)
		Eventually(func() error { return here.client.Get(ctx(), client.ObjectKey{Name: name}, definition) }).Should(Satisfy(apierrors.IsNotFound))
		Eventually(peers.Members).Should(BeEmpty())
		Expect(peers.Removed()).To(BeEmpty())

		By("starting another agent without it")
		second, _ := startAgent()
		Eventually(second.Listed()).Should(BeClosed())
		Expect(second.Members()).To(BeEmpty())
		Expect(here.client.Get(ctx(), client.ObjectKey{Namespace: "comity-system", Name: "peer-b"}, &corev1.Secret{})).To(Succeed())

		By("applying it again")
		apply()
		here.create(peer("b"), peer("c"))
		for _, set := range []*members.Set{peers, second} {
			Eventually(set.Members).Should(And(HaveLen(2), HaveEach(haveSynced)))
			Eventually(func() []model.Export { return exportsOf(set, key) }).Should(HaveLen(1))
		}
	})
})
