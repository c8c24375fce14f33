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

	"github.com/comity-mcs/comity/sync/members"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
)

var (
	haveConnected = HaveField("Liveness.State", model.Connected)
	haveSynced    = HaveField("Synced", true)
)

var _ = Describe("a peer behind a broken network", func() {
	It("FAULT 6: watches that stand and bring nothing are found by the heartbeat and replaced", func() {
		kept := here.export("b", "kept")
		Eventually(exports(kept)).Should(HaveLen(1))
		Eventually(member("b")).Should(haveConnected)
		before := reconnects()
		silence()
		missed := here.export("b", "missed")
		Eventually(reconnects).Should(BeNumerically(">", before), "the heartbeat finds it, not the end of the connection")
		Eventually(func(g Gomega) {
			g.Expect(exportsOf(peers, missed)).To(HaveLen(1))
			g.Expect(exportsOf(peers, kept)).To(HaveLen(1))
		}).Should(Succeed())
		Eventually(member("b")).Should(And(haveConnected, haveSynced))
		Eventually(condition("b", "Connected")).Should(HavePrefix("True Connected"))
	})

	It("FAULT 6: a peer of whom nothing comes at all is Lost, keeps what it exported, and recovers", func() {
		kept := here.export("b", "kept-in-the-dark")
		Eventually(exports(kept)).Should(HaveLen(1))
		toB.toxic("dark", "timeout", `{"timeout":0}`)
		Eventually(member("b")).Should(HaveField("Liveness.State", model.Lost))
		Expect(member("b")().Liveness).To(And(HaveField("Reason", remote.ReasonUnreachable), HaveField("Confirmed", Not(BeZero()))))
		Expect(member("b")()).To(haveSynced)
		Expect(exportsOf(peers, kept)).To(HaveLen(1))
		Expect(member("c")()).To(And(haveConnected, haveSynced), "another peer has no part in it")
		toB.cure("dark")
		Eventually(member("b")).Should(haveConnected)
		Eventually(condition("b", "Connected")).Should(HavePrefix("True Connected"))
		Eventually(eventsOn("b")).Should(ContainElements(HavePrefix("Lost: "), HavePrefix("Connected: the heartbeat of the cluster is seen")))
	})

	It("FAULT 5: connections that break cause no wrong withdrawal, and what was withdrawn meanwhile goes", func() {
		kept, gone := here.export("b", "kept-by-relist"), here.export("b", "gone-by-relist")
		Eventually(exports(gone)).Should(HaveLen(1))
		Eventually(exports(kept)).Should(HaveLen(1))
		toB.proxy.Stop()
		here.delete(exportRecord("b", "gone-by-relist"))
		Consistently(exports(gone)).Should(HaveLen(1), "unreachable is not gone")
		Expect(toB.proxy.Start()).To(Succeed())
		Eventually(func() []model.Export {
			Expect(exportsOf(peers, kept)).To(HaveLen(1))
			return exportsOf(peers, gone)
		}).Should(BeEmpty())
	})

	It("FAULT 7: a slow peer does not hold up another", func() {
		here.publish("slow", "uid-slow")
		crawl := newNetwork("slow", here.address())
		crawl.slow(15 * time.Second)
		secret := peerSecret("peer-slow", kubeconfig(crawl.address()))
		here.create(secret, peer("slow"))
		DeferCleanup(func() { here.delete(secret, peer("slow")) })
		Eventually(member("slow")).Should(HaveField("ID", model.ClusterID("slow")))
		key := here.export("c", "quick")
		Eventually(exports(key)).Should(HaveLen(1))
		Expect(member("slow")()).To(HaveField("Synced", false), "it was read while the slow one was not")
		crawl.cure("slow")
		crawl.hangUp()
		Eventually(member("slow")).Should(haveSynced)
	})
})

var _ = Describe("the credential of a peer", func() {
	// good is a token of b's API server that may read everything there.
	good := func(account string) func(*clientcmdapi.AuthInfo) {
		GinkgoHelper()
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "comity-system", Name: account}}
		here.create(sa, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: account},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "comity-system", Name: account}},
		})
		token := &authenticationv1.TokenRequest{}
		Expect(here.client.SubResource("token").Create(ctx(), sa, token)).To(Succeed())
		return func(u *clientcmdapi.AuthInfo) {
			u.ClientCertificateData, u.ClientKeyData, u.Token = nil, nil, token.Status.Token
		}
	}
	withdraw := func(account string) {
		here.delete(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "comity-system", Name: account}})
	}

	It("FAULT 21: rotated, revoked and given anew: the exports stay, and what is wrong is named", func() {
		key := here.export("b", "rotated")
		Eventually(exports(key)).Should(HaveLen(1))
		always := func() { ExpectWithOffset(1, exportsOf(peers, key)).To(HaveLen(1)) }
		DeferCleanup(func() {
			rotate(kubeconfig(toB.address()))
			Eventually(member("b")).Should(And(haveConnected, haveSynced))
			Eventually(condition("b", "Accepted")).Should(HavePrefix("True Accepted"))
			Eventually(condition("b", "Connected")).Should(HavePrefix("True Connected"))
		})

		By("rotating to another account: the old connection goes when the new one is synced")
		rotate(kubeconfig(toB.address(), good("first")))
		Eventually(func() *metav1.Time { return stored("b").Status.TokenExpires }).ShouldNot(BeNil())
		Consistently(exports(key)).WithTimeout(3*time.Second).Should(HaveLen(1), "while the new connection takes the place of the old one")

		By("giving another token: the connection that there is uses it, and the old one may go")
		lists := reconnects()
		rotate(kubeconfig(toB.address(), good("second")))
		withdraw("first")
		Eventually(func(g Gomega) {
			toB.hangUp()
			always()
			g.Eventually(condition("b", "Connected")).WithTimeout(5 * time.Second).Should(HavePrefix("True Connected"))
			g.Expect(condition("b", "Accepted")()).To(HavePrefix("True Accepted"))
		}).Should(Succeed())
		Expect(reconnects()).To(Equal(lists))

		By("revoking it: Unauthorized at the next request, then Lost, and nothing is withdrawn")
		withdraw("second")
		Eventually(func() string { toB.hangUp(); always(); return condition("b", "Connected")() }).WithPolling(time.Second).Should(HavePrefix("False Unauthorized"))
		Eventually(member("b")).Should(HaveField("Liveness", And(HaveField("State", model.Lost), HaveField("Reason", remote.ReasonUnauthorized))))
		Eventually(condition("b", "Connected")).Should(And(HavePrefix("False Lost"), ContainSubstring("Unauthorized")))
		Expect(member("b")()).To(haveSynced)
		always()

		By("writing garbage, and an exec plugin: the kubeconfig is refused, the old data stays")
		rotate([]byte("very-secret-token: ["))
		Eventually(condition("b", "Accepted")).Should(HavePrefix("False " + members.ReasonInvalidKubeconfig))
		rotate(kubeconfig(toB.address(), func(u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{Command: "/bin/sh", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: "Never"}
		}))
		Eventually(condition("b", "Accepted")).Should(And(HavePrefix("False "+members.ReasonInvalidKubeconfig), ContainSubstring("exec")))
		Expect(eventsOn("b")()).To(And(ContainElement(HavePrefix(members.ReasonInvalidKubeconfig)), HaveEach(Not(ContainSubstring("very-secret-token")))), "no credential in an event")
		always()

		By("giving it a good one: its heartbeat is seen again")
		rotate(kubeconfig(toB.address(), good("third")))
		Eventually(condition("b", "Accepted")).Should(HavePrefix("True Accepted"))
		Eventually(condition("b", "Connected")).Should(HavePrefix("True Connected"))
		Eventually(member("b")).Should(haveConnected)
		always()
	})
})
