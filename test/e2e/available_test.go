// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/status/condition"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

var _ = Describe("A ServiceExport says whether others import it:", kep("exporting-services", "importing-services"), func() {
	It("not without the namespace, then imported, one event each", func(ctx SpecContext) {
		key := types.NamespacedName{Namespace: "available", Name: "told"}
		clusterA.create(ctx, newNamespace(key.Namespace))
		clusterA.create(ctx, newServer(key.Namespace, key.Name, 1), newService(key.Namespace, key.Name, corev1.ServiceTypeClusterIP), newExport(key.Namespace, key.Name))
		Expect(clusterA.expectAvailable(ctx, key, metav1.ConditionFalse, model.ReasonNamespaceMissing)).
			To(And(ContainSubstring("imported by 0 of 1 clusters"), ContainSubstring("in b since")))
		clusterB.create(ctx, newNamespace(key.Namespace))
		Expect(clusterA.expectAvailable(ctx, key, metav1.ConditionTrue, model.ReasonImported)).
			To(ContainSubstring("imported by the one cluster in scope: b"))
		clusterB.expectAnswers(ctx, hostOf(key), servicePort, clusterA.awaitPods(ctx, key.Namespace, key.Name, 1)...)
		for _, reason := range []string{model.ReasonNamespaceMissing, model.ReasonImported} {
			Eventually(ctx, clusterA.told).WithArguments(ctx, key, reason).Should(Equal(1), reason)
			Consistently(ctx, clusterA.told).WithArguments(ctx, key, reason).Should(Equal(1), reason)
		}
	})
})

var _ = Describe("Addresses of a peer", Ordered, Serial, beyond(), func() {
	key := types.NamespacedName{Namespace: "addresses", Name: "judged"}
	peer := &exchangev1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	var accepted []string
	accept := func(ctx context.Context, ranges ...string) {
		GinkgoHelper()
		Expect(clusterB.patch(ctx, peer.DeepCopy(), fmt.Sprintf(`{"spec": {"acceptedCIDRs": ["%s"]}}`, strings.Join(ranges, `", "`)))).To(Succeed())
		step("in b: of a, addresses in %s are accepted", ranges)
	}
	var pods []string

	BeforeAll(func(ctx SpecContext) {
		current := peer.DeepCopy()
		Expect(clusterB.client.Get(ctx, types.NamespacedName{Name: peer.Name}, current)).To(Succeed())
		accepted = current.Spec.AcceptedCIDRs
		Expect(accepted).NotTo(BeEmpty())
		DeferCleanup(func(ctx SpecContext) { accept(ctx, accepted...) })
		for _, m := range bothMembers() {
			m.create(ctx, newNamespace(key.Namespace))
		}
		clusterA.create(ctx, newServer(key.Namespace, key.Name, 1), newService(key.Namespace, key.Name, corev1.ServiceTypeClusterIP), newExport(key.Namespace, key.Name))
		pods = clusterA.awaitPods(ctx, key.Namespace, key.Name, 1)
		clusterB.expectAnswers(ctx, hostOf(key), servicePort, pods...)
	})

	It("that are not accepted leave, are named on both sides, and come back", func(ctx SpecContext) {
		accept(ctx, "192.0.2.0/24")
		clusterB.expectEndpoints(ctx, key, BeEmpty())
		Expect(clusterB.expectNotReady(ctx, key, model.ReasonAddressNotAccepted)).
			To(And(ContainSubstring("Peer a"), ContainSubstring("acceptedCIDRs")))
		clusterA.expectAvailable(ctx, key, metav1.ConditionFalse, model.ReasonAddressNotAccepted)
		accept(ctx, accepted...)
		clusterB.expectAnswers(ctx, hostOf(key), servicePort, pods...)
		clusterB.expectImported(ctx, key, mcsv1beta1.ClusterSetIP, "a")
		clusterA.expectAvailable(ctx, key, metav1.ConditionTrue, model.ReasonImported)
	})

	It("that are this cluster's own are left out although they are accepted, and the others go on", func(ctx SpecContext) {
		own := clusterB.Network().PodCIDRs[0]
		accept(ctx, append(slices.Clone(accepted), own.String())...)
		clusterA.create(ctx, &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: key.Namespace, Name: "by-hand", Labels: map[string]string{discoveryv1.LabelServiceName: key.Name}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{own.Addr().Next().String()}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
			Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To[int32](podPort), Protocol: ptr.To(corev1.ProtocolTCP)}},
		})
		// One address is good, so that the import is Ready and both sides only add what is wrong.
		Eventually(ctx, func() string { return clusterA.expectAvailable(ctx, key, metav1.ConditionTrue, model.ReasonImported) }).
			Should(ContainSubstring("AddressOverlap in b since"))
		Eventually(ctx, clusterB.readiness).WithArguments(ctx, key).Should(And(
			HaveField("Status", metav1.ConditionTrue), HaveField("Message", ContainSubstring("AddressOverlap in a: endpoint addresses of cluster a are left out (1 Overlap)"))))
		clusterB.expectEndpoints(ctx, key, ConsistOf(slices.Concat(slices.Collect(maps.Values(clusterA.podIPs(ctx, key.Namespace, key.Name)))...)))
		clusterB.expectAnswers(ctx, hostOf(key), servicePort, pods...)
		Expect(clusterA.client.Delete(ctx, &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "by-hand"}})).To(Succeed())
		clusterB.expectImported(ctx, key, mcsv1beta1.ClusterSetIP, "a")
	})
})

// expectAvailable waits until Available of a ServiceExport is so, and gives its message.
func (m *member) expectAvailable(ctx context.Context, key types.NamespacedName, status metav1.ConditionStatus, reason string) string {
	GinkgoHelper()
	var found *metav1.Condition
	Eventually(ctx, func(g Gomega) {
		export, err := m.exportOf(ctx, key)
		g.Expect(err).NotTo(HaveOccurred())
		found = meta.FindStatusCondition(export.Status.Conditions, condition.TypeAvailable)
		g.Expect(found).NotTo(BeNil())
		g.Expect(*found).To(And(HaveField("Status", status), HaveField("Reason", reason)))
	}).Should(Succeed(), "Available of ServiceExport %s in cluster %s", key, m.ID())
	step("in %s: ServiceExport %s: Available=%s, %s: %s", m.ID(), key, found.Status, found.Reason, found.Message)
	return found.Message
}

// readiness is the condition Ready of a ServiceImport; the zero one if it has none.
func (m *member) readiness(ctx context.Context, key types.NamespacedName) (*metav1.Condition, error) {
	imported := &mcsv1beta1.ServiceImport{}
	if err := m.client.Get(ctx, key, imported); err != nil {
		return nil, err
	}
	if found := meta.FindStatusCondition(imported.Status.Conditions, condition.TypeImportReady); found != nil {
		return found, nil
	}
	return &metav1.Condition{}, nil
}

// expectNotReady waits until a ServiceImport is not Ready for reason, and gives the message.
func (m *member) expectNotReady(ctx context.Context, key types.NamespacedName, reason string) string {
	GinkgoHelper()
	var found *metav1.Condition
	Eventually(ctx, func() (_ *metav1.Condition, err error) {
		found, err = m.readiness(ctx, key)
		return found, err
	}).Should(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", reason)), "Ready of ServiceImport %s in cluster %s", key, m.ID())
	step("in %s: ServiceImport %s: Ready=False, %s: %s", m.ID(), key, found.Reason, found.Message)
	return found.Message
}

// expectEndpoints waits until the addresses that m imports of key are so.
func (m *member) expectEndpoints(ctx context.Context, key types.NamespacedName, wanted gomegatypes.GomegaMatcher) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		var list discoveryv1.EndpointSliceList
		g.Expect(m.client.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingLabels{model.LabelServiceName: key.Name})).To(Succeed())
		var addresses []string
		for _, s := range list.Items {
			for _, e := range s.Endpoints {
				addresses = append(addresses, e.Addresses...)
			}
		}
		g.Expect(addresses).To(wanted)
	}).Should(Succeed(), "endpoints of %s in cluster %s", key, m.ID())
}

// told counts how often the event of a ServiceExport's Available was sent.
func (m *member) told(ctx context.Context, key types.NamespacedName, reason string) (int, error) {
	list, err := m.typed.EventsV1().Events(key.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	count := 0
	for _, e := range list.Items {
		if e.Regarding.Kind == "ServiceExport" && e.Regarding.Name == key.Name && e.Action == condition.TypeAvailable && e.Reason == reason {
			count++
			if e.Series != nil {
				count += int(e.Series.Count)
			}
		}
	}
	return count, nil
}
