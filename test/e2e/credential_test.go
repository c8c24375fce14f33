// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/status/condition"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

var _ = Describe("FAULT 21: the credential with which b reads a", Ordered, Serial, beyond(), func() {
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

	It("that is revoked makes a Lost, removes nothing and fails no request, and join repairs it", kep("endpoint-ttl"), func(ctx SpecContext) {
		imported = clusterB.settledSlicesFrom(ctx, key, clusterA, 1)
		DeferCleanup(func(ctx SpecContext) { // whatever failed here shall fail here alone
			shell.run(ctx, "kubectl comity join a b")
			clusterB.awaitPeer(ctx)
		})
		stop := keepAsking(ctx, clusterB, hostOf(key))
		shell.run(ctx, "kubectl --context a -n comity-system delete serviceaccount peer-b")
		// An open watch outlives its token, so the connection is reset too.
		Expect(clusterB.Block(ctx, clusterA.Cluster)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(clusterB.Unblock(ctx)).To(Succeed()) })
		Expect(clusterB.expectSource(ctx, key, condition.ReasonLost)).To(ContainSubstring("endpoints there stay in use"))
		Expect(clusterB.Unblock(ctx)).To(Succeed())
		Eventually(ctx, clusterB.peerConditions).WithArguments(ctx, clusterA).
			Should(ContainElement(And(HaveField("Type", exchangev1alpha1.PeerConnected), HaveField("Status", Not(Equal(metav1.ConditionTrue))), HaveField("Message", ContainSubstring("kubectl comity join")))))
		clusterB.expectSource(ctx, key, condition.ReasonLost)
		Expect(clusterB.slicesFrom(ctx, key, "a")).To(Equal(imported), "slices from a stay as they are")
		By("restarting with the revoked token")
		clusterB.replaceLeader(ctx)
		Consistently(ctx, clusterB.slicesFrom).WithArguments(ctx, key, "a").Should(Equal(imported), "slices from a stay as they are")
		Expect(shell.fails(ctx, "kubectl comity status b")).To(ContainSubstring("kubectl comity join"))

		shell.run(ctx, "kubectl comity join a b")
		clusterB.expectSource(ctx, key, condition.ReasonConnected)
		Expect(clusterB.slicesFrom(ctx, key, "a")).To(Equal(imported), "slices from a stay as they are")
		requests, failed := stop()
		step("in b: %d requests while the credential was revoked, failed: %v", requests, failed)
		Expect(failed).To(BeEmpty())
		Expect(requests).To(BeNumerically(">", 100))
		follows(ctx, 2)
	})
})

// peerConditions are those that m gives its Peer for other.
func (m *member) peerConditions(ctx context.Context, other *member) ([]metav1.Condition, error) {
	peer := &exchangev1alpha1.Peer{}
	err := m.client.Get(ctx, types.NamespacedName{Name: other.ID()}, peer)
	return peer.Status.Conditions, err
}

// admits says whether the API server of m lets the credential read what a peer reads.
func (m *member) admits(ctx context.Context, credential *rest.Config) error {
	reader, err := client.New(credential, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	return reader.List(ctx, &exchangev1alpha1.ExportRecordList{}, client.InNamespace(model.ExchangeNamespace(model.ClusterID(m.ID()))))
}
