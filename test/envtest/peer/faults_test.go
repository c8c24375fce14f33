// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/members"
	"github.com/comity-mcs/comity/sync/model"
)

var (
	haveConnected = HaveField("Liveness.State", model.Connected)
	haveSynced    = HaveField("Synced", true)
)

var _ = Describe("a peer behind a broken network", func() {
	It("FAULT 6: watches that stand and bring nothing are found by the heartbeat and replaced", func() {
		kept := there.export("b", "kept")
		Eventually(exports(kept)).Should(HaveLen(1))
		Eventually(member("b")).Should(haveConnected)
		before := reconnects()
		silence()
		missed := there.export("b", "missed")
		Eventually(reconnects).Should(BeNumerically(">", before), "the heartbeat finds it, not the end of the connection")
		Eventually(func(g Gomega) {
			g.Expect(peers.Exports(missed)).To(HaveLen(1))
			g.Expect(peers.Exports(kept)).To(HaveLen(1))
		}).Should(Succeed())
		Eventually(member("b")).Should(And(haveConnected, haveSynced))
		Eventually(state("b")).Should(HaveField("Reason", ""))
	})

	It("FAULT 6: a peer of whom nothing comes at all is Stale, then Lost, keeps what it exported, and recovers", func() {
		kept := there.export("b", "kept-in-the-dark")
		Eventually(exports(kept)).Should(HaveLen(1))
		toB.toxic("dark", "timeout", `{"timeout":0}`)
		Eventually(member("b")).Should(HaveField("Liveness.State", model.Stale))
		Expect(member("b")().Liveness).To(And(HaveField("Reason", members.ReasonUnreachable), HaveField("Confirmed", Not(BeZero()))))
		Eventually(member("b")).Should(HaveField("Liveness.State", model.Lost))
		Expect(member("b")()).To(haveSynced)
		Expect(peers.Exports(kept)).To(HaveLen(1))
		Expect(member("c")()).To(And(haveConnected, haveSynced), "another peer has no part in it")
		toB.cure("dark")
		Eventually(member("b")).Should(haveConnected)
		Eventually(eventsOn("peer-b")).Should(ContainElements(HavePrefix("Stale: "), HavePrefix("Lost: "), HavePrefix("Connected: the heartbeat of cluster b is seen again")))
	})

	It("FAULT 5: connections that break cause no wrong withdrawal, and what was withdrawn meanwhile goes", func() {
		kept, gone := there.export("b", "kept-by-relist"), there.export("b", "gone-by-relist")
		Eventually(exports(gone)).Should(HaveLen(1))
		Eventually(exports(kept)).Should(HaveLen(1))
		toB.proxy.Stop()
		there.delete(exportRecord("b", "gone-by-relist"))
		Consistently(exports(gone)).Should(HaveLen(1), "unreachable is not gone")
		Expect(toB.proxy.Start()).To(Succeed())
		Eventually(func() []model.Export {
			Expect(peers.Exports(kept)).To(HaveLen(1))
			return peers.Exports(gone)
		}).Should(BeEmpty())
		Expect(peers.Held(gone)).To(BeEmpty(), "one is no accident")
	})

	It("FAULT 7: a slow peer does not hold up another", func() {
		there.publish("slow", "uid-slow")
		crawl := newNetwork("slow", there.address())
		crawl.slow(15 * time.Second)
		secret := peerSecret("peer-slow", "slow", kubeconfig(crawl.address(), &there))
		here.create(secret)
		DeferCleanup(func() { here.delete(secret) })
		Eventually(member("slow")).Should(HaveField("ID", model.ClusterID("slow")))
		key := here.export("c", "quick")
		Eventually(exports(key)).Should(HaveLen(1))
		Expect(member("slow")()).To(HaveField("Synced", false), "it was read while the slow one was not")
		crawl.cure("slow")
		crawl.hangUp()
		Eventually(member("slow")).Should(haveSynced)
	})
})

var _ = Describe("the credential of a peer", Ordered, func() {
	// good is a token of b's API server that may read everything there.
	good := func(account string) func(*clientcmdapi.AuthInfo) {
		GinkgoHelper()
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "comity-system", Name: account}}
		there.create(sa, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: account},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "comity-system", Name: account}},
		})
		token := &authenticationv1.TokenRequest{}
		Expect(there.client.SubResource("token").Create(ctx(), sa, token)).To(Succeed())
		return func(u *clientcmdapi.AuthInfo) {
			u.ClientCertificateData, u.ClientKeyData, u.Token = nil, nil, token.Status.Token
		}
	}
	withdraw := func(account string) {
		there.delete(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "comity-system", Name: account}})
	}

	It("FAULT 21: rotated, revoked and given anew: the exports stay, and what is wrong is named", func() {
		key := there.export("b", "rotated")
		Eventually(exports(key)).Should(HaveLen(1))
		always := func() { ExpectWithOffset(1, peers.Exports(key)).To(HaveLen(1)) }

		By("rotating to another account: the old connection goes when the new one is synced")
		rotate(kubeconfig(toB.address(), &there, good("first")))
		Eventually(state("b")).Should(And(HaveField("Trying", false), HaveField("Reason", "")))
		always()

		By("revoking it: Unauthorized at the next request, then Stale, and nothing is withdrawn")
		withdraw("first")
		Eventually(func() string { toB.hangUp(); always(); return state("b")().Reason }).WithPolling(time.Second).Should(Equal(members.ReasonUnauthorized))
		Eventually(member("b")).Should(HaveField("Liveness", And(HaveField("State", model.Stale), HaveField("Reason", members.ReasonUnauthorized))))
		Expect(member("b")()).To(haveSynced)
		always()

		By("writing garbage, and an exec plugin: the Secret is refused, the old data stays")
		rotate([]byte("garbage"))
		Eventually(state("b")).Should(HaveField("Reason", members.ReasonInvalidKubeconfig))
		rotate(kubeconfig(toB.address(), &there, func(u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{Command: "/bin/sh", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: "Never"}
		}))
		Eventually(eventsOn("peer-b")).Should(ContainElement(And(HavePrefix(members.ReasonInvalidKubeconfig), ContainSubstring("exec"))))
		always()

		By("giving it a good one: heard of again")
		rotate(kubeconfig(toB.address(), &there, good("second")))
		Eventually(state("b")).Should(And(HaveField("Trying", false), HaveField("Reason", "")))
		Eventually(member("b")).Should(haveConnected)
		always()
	})

	It("FAULT 21: a second Secret for one id is refused, and the first stays in use", func() {
		key := there.export("b", "unmoved")
		Eventually(exports(key)).Should(HaveLen(1))
		second := peerSecret("zz-second", "b", kubeconfig(here.address(), &here))
		here.create(second)
		DeferCleanup(func() { here.delete(second) })
		Eventually(eventsOn("zz-second")).Should(ContainElement(And(HavePrefix(members.ReasonDuplicateClusterID), ContainSubstring("peer-b"))))
		Consistently(exports(key)).Should(HaveLen(1))
	})

	It("FAULT 22: an id that another cluster uses now is refused, and all of the first one is kept", func() {
		key := there.export("b", "of-the-first")
		Eventually(exports(key)).Should(HaveLen(1))
		By("noting the cluster in the Secret")
		Eventually(func() string {
			var secret corev1.Secret
			Expect(here.client.Get(ctx(), client.ObjectKey{Namespace: "comity-system", Name: "peer-b"}, &secret)).To(Succeed())
			return secret.Annotations[model.AnnotationClusterUID]
		}).Should(Equal("uid-b"))
		By("leading the Secret to another cluster that calls itself b")
		DeferCleanup(func() {
			rotate(kubeconfig(toB.address(), &there))
			Eventually(state("b")).Should(And(HaveField("Trying", false), HaveField("Reason", "")))
		})
		here.publish("b", "uid-other")
		rotate(kubeconfig(here.address(), &here))
		Eventually(state("b")).Should(And(HaveField("Reason", members.ReasonClusterIDReused), HaveField("Message", And(ContainSubstring("uid-b"), ContainSubstring("uid-other")))))
		Eventually(eventsOn("peer-b")).Should(ContainElement(HavePrefix(members.ReasonClusterIDReused)))
		Consistently(exports(key)).Should(HaveLen(1))
		Expect(member("b")()).To(haveSynced)
	})
})
