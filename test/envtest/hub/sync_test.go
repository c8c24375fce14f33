// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/install"
)

// number makes names and addresses that nothing else has.
var number atomic.Int64

func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	name := fmt.Sprintf("shop-%d", number.Add(1))
	for _, m := range members {
		Expect(m.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	}
	return name
}

// newAddress is one of a Pod of m that nothing else has.
func (m *member) newAddress() string {
	address := m.Network().PodCIDRs[0].Addr().As4()
	n := number.Add(1)
	return fmt.Sprintf("%d.%d.%d.%d", address[0], address[1], n/250+1, n%250+1)
}

// slice is what the EndpointSlice controller would write for Service web.
func slice(namespace, address string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-x", Labels: map[string]string{
			discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
	}
}

// export makes Service web in m and exports it; to is empty or the only clusters
// that may import it. It gives the address of its one endpoint.
func (m *member) export(ctx context.Context, namespace, to string) string {
	GinkgoHelper()
	address := m.newAddress()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}},
	}
	Expect(m.client.Create(ctx, service)).To(Succeed())
	Expect(m.client.Create(ctx, slice(namespace, address))).To(Succeed())
	Eventually(func() error {
		export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
		if to != "" {
			export.Annotations = map[string]string{model.AnnotationExportTo: to}
		}
		return m.client.Create(ctx, export) // refused until the webhook knows the peers
	}).Should(Succeed())
	return address
}

// move gives Service web in m another endpoint.
func (m *member) move(ctx context.Context, namespace string) string {
	GinkgoHelper()
	address := m.newAddress()
	Expect(m.client.Update(ctx, slice(namespace, address))).To(Succeed())
	return address
}

// backends are the addresses that m has for web of the clusterset.
func (m *member) backends(namespace string) func(Gomega, context.Context) []string {
	return func(g Gomega, ctx context.Context) []string {
		var list discoveryv1.EndpointSliceList
		g.Expect(m.client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{
			model.LabelServiceName: "web", discoveryv1.LabelManagedBy: model.ManagedBy,
		})).To(Succeed())
		out := []string{}
		for _, s := range list.Items {
			for _, e := range s.Endpoints {
				out = append(out, s.Labels[model.LabelSourceCluster]+"/"+e.Addresses[0])
			}
		}
		slices.Sort(out)
		return out
	}
}

// imported are the UIDs of all that m imported in a namespace: who was deleted
// and made again has another one.
func (m *member) imported(ctx context.Context, namespace string) map[string]string {
	GinkgoHelper()
	out := map[string]string{}
	for _, list := range []client.ObjectList{&discoveryv1.EndpointSliceList{}, &corev1.ServiceList{}, &mcsv1beta1.ServiceImportList{}} {
		Expect(m.client.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
		for _, object := range items(list) {
			if model.IsManaged(object) {
				out[fmt.Sprintf("%T %s", object, object.GetName())] = string(object.GetUID())
			}
		}
	}
	return out
}

func items(list client.ObjectList) (out []client.Object) {
	switch list := list.(type) {
	case *discoveryv1.EndpointSliceList:
		for i := range list.Items {
			out = append(out, &list.Items[i])
		}
	case *corev1.ServiceList:
		for i := range list.Items {
			out = append(out, &list.Items[i])
		}
	case *mcsv1beta1.ServiceImportList:
		for i := range list.Items {
			out = append(out, &list.Items[i])
		}
	}
	return out
}

// published are the namespaces of the hub in which web is published.
func published(ctx context.Context, namespace string) []string {
	GinkgoHelper()
	var list exchangev1alpha1.ExportRecordList
	Expect(theHub.client.List(ctx, &list)).To(Succeed())
	out := []string{}
	for _, r := range list.Items {
		if r.Name == model.RecordName(namespace, "web") && !r.Spec.Withdrawn {
			out = append(out, r.Namespace)
		}
	}
	slices.Sort(out)
	return out
}

var _ = Describe("Members of a hub", func() {
	It("import what another publishes there, and follow it", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		address := members["a"].export(ctx, namespace, "")
		for _, id := range []string{"b", "c"} {
			Eventually(members[id].backends(namespace)).WithContext(ctx).Should(ConsistOf("a/"+address), id)
		}
		Expect(published(ctx, namespace)).To(Equal([]string{"comity-a"}))
		By("publishing nothing at home")
		var local exchangev1alpha1.ExportRecordList
		Expect(members["a"].client.List(ctx, &local)).To(Succeed())
		Expect(local.Items).To(BeEmpty())

		address = members["a"].move(ctx, namespace)
		other := members["b"].export(ctx, namespace, "")
		Eventually(members["c"].backends(namespace)).WithContext(ctx).Should(ConsistOf("a/"+address, "b/"+other))

		By("withdrawing it")
		Expect(members["a"].client.Delete(ctx, &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}})).To(Succeed())
		Eventually(members["c"].backends(namespace)).WithContext(ctx).Should(ConsistOf("b/" + other))
	})

	It("say there that they are alive", func(ctx SpecContext) {
		for _, id := range ids {
			key := client.ObjectKey{Namespace: model.ExchangeNamespace(model.ClusterID(id)), Name: id}
			var lease coordinationv1.Lease
			Eventually(func() error { return theHub.client.Get(ctx, key, &lease) }).Should(Succeed(), id)
			Expect(lease.Spec.HolderIdentity).To(HaveValue(Equal(id)))
			first := lease.ResourceVersion
			Eventually(func() (string, error) {
				err := theHub.client.Get(ctx, key, &lease)
				return lease.ResourceVersion, err
			}).ShouldNot(Equal(first), "a later heartbeat of %s", id)
		}
	})

	It("publish what is for one alone where it alone reads", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		address := members["a"].export(ctx, namespace, "b")
		Eventually(members["b"].backends(namespace)).WithContext(ctx).Should(ConsistOf("a/" + address))
		Expect(published(ctx, namespace)).To(Equal([]string{"comity-a-to-b"}))

		By("waiting until c has read what a published later")
		later := newNamespace(ctx)
		address = members["a"].export(ctx, later, "")
		Eventually(members["c"].backends(later)).WithContext(ctx).Should(ConsistOf("a/" + address))
		Expect(members["c"].imported(ctx, namespace)).To(BeEmpty())
	})

	It("say what came of an import as soon as there is a place for it", Serial, func(ctx SpecContext) {
		place := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "comity-b-to-a"}}
		mark := func(ctx context.Context, value string) {
			GinkgoHelper()
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, model.LabelExchangeFrom, value)
			Expect(theHub.client.Patch(ctx, place.DeepCopy(), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
		}
		mark(ctx, "null")
		DeferCleanup(mark, `"b"`)
		members["b"].restart(ctx)
		namespace := newNamespace(ctx)
		address := members["a"].export(ctx, namespace, "")
		Eventually(members["b"].backends(namespace)).WithContext(ctx).Should(ConsistOf("a/" + address))
		said := func() error {
			key := client.ObjectKey{Namespace: place.Name, Name: model.RecordName(namespace, "web")}
			return theHub.client.Get(ctx, key, &exchangev1alpha1.ImportRecord{})
		}
		Expect(said()).To(Satisfy(apierrors.IsNotFound))

		mark(ctx, `"b"`)
		Eventually(said).Should(Succeed())
	})

	It("take over a new credential from the file", Serial, func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		members["a"].export(ctx, namespace, "")
		old := members["a"].inHub(ctx)
		By("making the account again, which ends every token of the old one")
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: join.DefaultNamespace, Name: "member-a"}}
		Expect(theHub.client.Delete(ctx, account)).To(Succeed())
		Eventually(func() error {
			return old.List(ctx, &exchangev1alpha1.ExportRecordList{}, client.InNamespace("comity-a"))
		}).ShouldNot(Succeed())
		Expect(install.Join(ctx, hub(), sides(ids...), join.Options{})).To(Succeed())
		members["a"].mount(ctx)

		address := members["a"].move(ctx, namespace)
		Eventually(members["b"].backends(namespace)).WithContext(ctx).Should(ConsistOf("a/" + address))
		other := members["b"].export(ctx, namespace, "")
		Eventually(members["a"].backends(namespace)).WithContext(ctx).Should(ContainElement("b/" + other))
	})

	It("keep the credential that they have when the file cannot be used", func(ctx SpecContext) {
		members["a"].spoil()
		DeferCleanup(members["a"].mount)
		Eventually(func() string { return members["a"].agent.LogTail(200) }).Should(MatchRegexp("the kubeconfig of the exchange is not used.*exec"))

		namespace := newNamespace(ctx)
		address := members["a"].export(ctx, namespace, "")
		Eventually(members["b"].backends(namespace)).WithContext(ctx).Should(ConsistOf("a/" + address))
	})
})
