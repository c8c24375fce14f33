// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/base64"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/status/condition"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/install"
)

var _ = Describe("FAULT 21: the credential with which b reads a", Ordered, beyond(), func() {
	key := types.NamespacedName{Namespace: "credential", Name: "kept"}
	var imported map[string]string
	// follows proves that the connection is alive: what changes in a arrives in b.
	follows := func(ctx context.Context, count int) {
		GinkgoHelper()
		Expect(clusterA.patch(ctx, newServer(key.Namespace, key.Name, 1), replicas(count))).To(Succeed())
		clusterB.expectAnswers(ctx, hostOf(key), servicePort, clusterA.awaitPods(ctx, key.Namespace, key.Name, count)...)
	}

	BeforeAll(func(ctx SpecContext) {
		for _, m := range bothMembers() {
			m.create(ctx, newNamespace(key.Namespace))
		}
		clusterA.create(ctx, newServer(key.Namespace, key.Name, 1), newService(key.Namespace, key.Name, corev1.ServiceTypeClusterIP), newExport(key.Namespace, key.Name))
		clusterB.expectSource(ctx, key, condition.ReasonConnected)
		follows(ctx, 2)
	})

	It("is rotated: the old one is useless, and no request fails", func(ctx SpecContext) {
		imported = clusterB.settledSlicesFrom(ctx, key, clusterA, 2)
		old := clusterB.credentialFor(ctx, clusterA)
		Expect(clusterA.admits(ctx, old)).To(Succeed())
		stop := keepAsking(ctx, clusterB, hostOf(key))
		shell.run(ctx, "kubectl comity rotate a b")
		Eventually(ctx, clusterA.admits).WithArguments(ctx, old).Should(Satisfy(apierrors.IsUnauthorized), "the old token")
		now := clusterB.credentialFor(ctx, clusterA)
		Expect(now.BearerToken).NotTo(Equal(old.BearerToken))
		Expect(clusterA.admits(ctx, now)).To(Succeed())
		clusterB.expectSource(ctx, key, condition.ReasonConnected)
		Expect(clusterB.slicesFrom(ctx, key, "a")).To(Equal(imported), "slices from a stay as they are")
		requests, failed := stop()
		step("in b: %d requests while the credential was rotated, failed: %v", requests, failed)
		Expect(failed).To(BeEmpty())
		follows(ctx, 1)
	})

	It("that is garbage or runs a program is refused by name, and the former one stays in use", func(ctx SpecContext) {
		restore := clusterB.replaceCredential(ctx, nil)
		DeferCleanup(restore)
		for _, bad := range []struct{ kubeconfig, words string }{
			{"garbage", "key kubeconfig"},
			{withExec(clusterB.kubeconfigFor(ctx, clusterA)), "exec"},
		} {
			clusterB.replaceCredential(ctx, []byte(bad.kubeconfig))
			Eventually(ctx, clusterB.peerConditions).WithArguments(ctx, clusterA).
				Should(ContainElement(And(HaveField("Type", exchangev1alpha1.PeerAccepted), HaveField("Status", metav1.ConditionFalse), HaveField("Message", ContainSubstring(bad.words)))))
			step("in b: condition Accepted of Peer a names %q", bad.words)
		}
		follows(ctx, 2)
		restore(ctx)
		clusterB.expectSource(ctx, key, condition.ReasonConnected)
	})

	It("that is revoked makes a Stale and removes nothing, and join repairs it", func(ctx SpecContext) {
		follows(ctx, 1)
		imported = clusterB.settledSlicesFrom(ctx, key, clusterA, 1)
		DeferCleanup(func(ctx SpecContext) { // whatever failed here shall fail here alone
			shell.run(ctx, "kubectl comity join a b")
			clusterB.awaitPeer(ctx)
		})
		shell.run(ctx, "kubectl --context a -n comity-system delete serviceaccount peer-b")
		// An open watch outlives its token, so the connection is reset too.
		Expect(clusterB.Block(ctx, clusterA.Cluster)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(clusterB.Unblock(ctx)).To(Succeed()) })
		clusterB.expectSource(ctx, key, condition.ReasonStale)
		Expect(clusterB.Unblock(ctx)).To(Succeed())
		Eventually(ctx, clusterB.peerConditions).WithArguments(ctx, clusterA).
			Should(ContainElement(And(HaveField("Type", exchangev1alpha1.PeerConnected), HaveField("Status", Not(Equal(metav1.ConditionTrue))), HaveField("Message", ContainSubstring("kubectl comity join")))))
		clusterB.expectSource(ctx, key, condition.ReasonStale)
		Expect(clusterB.slicesFrom(ctx, key, "a")).To(Equal(imported), "slices from a stay as they are")
		clusterB.expectAnswers(ctx, hostOf(key), servicePort, clusterA.awaitPods(ctx, key.Namespace, key.Name, 1)...)
		By("restarting with the revoked token")
		clusterB.replaceLeader(ctx)
		Consistently(ctx, clusterB.slicesFrom).WithArguments(ctx, key, "a").Should(Equal(imported), "slices from a stay as they are")
		Expect(shell.fails(ctx, "kubectl comity status b")).To(ContainSubstring("kubectl comity join"))

		shell.run(ctx, "kubectl comity join a b")
		clusterB.expectSource(ctx, key, condition.ReasonConnected)
		Expect(clusterB.slicesFrom(ctx, key, "a")).To(Equal(imported), "slices from a stay as they are")
		follows(ctx, 2)
	})
})

// peerConditions are those that m gives its Peer for other.
func (m *member) peerConditions(ctx context.Context, other *member) ([]metav1.Condition, error) {
	peer := &exchangev1alpha1.Peer{}
	err := m.client.Get(ctx, types.NamespacedName{Name: other.ID()}, peer)
	return peer.Status.Conditions, err
}

// peerSecret is where m keeps what it reads other with.
func (m *member) peerSecret(ctx context.Context, other *member) *corev1.Secret {
	GinkgoHelper()
	secret := &corev1.Secret{}
	key := types.NamespacedName{Namespace: install.Namespace, Name: join.PeerName(model.ClusterID(other.ID()))}
	Expect(m.client.Get(ctx, key, secret)).To(Succeed())
	return secret
}

func (m *member) kubeconfigFor(ctx context.Context, other *member) []byte {
	GinkgoHelper()
	return m.peerSecret(ctx, other).Data[join.KubeconfigKey]
}

// replaceCredential stores another kubeconfig for the other cluster, or none if
// it is nil, and gives what stores the former one again.
func (m *member) replaceCredential(ctx context.Context, kubeconfig []byte) (restore func(context.Context)) {
	GinkgoHelper()
	secret := m.peerSecret(ctx, m.other())
	store := func(ctx context.Context, kubeconfig []byte) {
		GinkgoHelper()
		patch := fmt.Sprintf(`{"data": {%q: %q}}`, join.KubeconfigKey, base64.StdEncoding.EncodeToString(kubeconfig))
		Expect(m.patch(ctx, secret.DeepCopy(), patch)).To(Succeed())
	}
	former := secret.Data[join.KubeconfigKey]
	if kubeconfig != nil {
		store(ctx, kubeconfig)
	}
	return func(ctx context.Context) { store(ctx, former) }
}

// withExec is a kubeconfig whose user is a program to run.
func withExec(kubeconfig []byte) string {
	GinkgoHelper()
	config, err := clientcmd.Load(kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	for _, user := range config.AuthInfos {
		user.Token = ""
		user.Exec = &clientcmdapi.ExecConfig{Command: "/bin/sh", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: "Never"}
	}
	text, err := clientcmd.Write(*config)
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// admits says whether the API server of m lets the credential read what a peer reads.
func (m *member) admits(ctx context.Context, credential *rest.Config) error {
	reader, err := client.New(credential, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	return reader.List(ctx, &exchangev1alpha1.ExportRecordList{}, client.InNamespace(model.ExchangeNamespace(model.ClusterID(m.ID()))))
}
