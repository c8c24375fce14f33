// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
)

var namespaceNumber atomic.Int64

// newNamespace makes a namespace of one name in the given clusters.
func newNamespace(in ...*cluster) string {
	GinkgoHelper()
	name := fmt.Sprintf("shop-%d", namespaceNumber.Add(1))
	for _, c := range in {
		c.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return name
}

// export exports a Service with one endpoint.
func (c *cluster) export(namespace, name string) *mcsv1beta1.ServiceExport {
	GinkgoHelper()
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	c.create(
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
		},
		&discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-x1", Labels: map[string]string{
				discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
			}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080)}},
			Endpoints: []discoveryv1.Endpoint{{
				Addresses: []string{c.Network().PodCIDRs[0].Addr().Next().String()}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
			}},
		},
		export,
	)
	return export
}

// said is what cluster b says to a of an export: its reason, or nothing.
func said(namespace, name string) func() string {
	return func() string {
		record := &exchangev1alpha1.ImportRecord{}
		key := types.NamespacedName{Namespace: model.ScopedExchangeNamespace("b", "a"), Name: model.RecordName(namespace, name)}
		if err := b.client.Get(ctx(), key, record); err != nil {
			return ""
		}
		return fmt.Sprint(record.Spec.Reason, " ", record.Spec.Imported)
	}
}

func record(namespace, name string) *exchangev1alpha1.ImportRecord {
	GinkgoHelper()
	out := &exchangev1alpha1.ImportRecord{}
	key := types.NamespacedName{Namespace: model.ScopedExchangeNamespace("b", "a"), Name: model.RecordName(namespace, name)}
	Expect(b.client.Get(ctx(), key, out)).To(Succeed())
	return out
}

const imported = model.ReasonImported + " true"

// as is a client with the credential that holder got for of when they joined.
func as(holder, of *cluster) client.Client {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Expect(holder.client.Get(ctx(), types.NamespacedName{Namespace: system, Name: model.PeerName(of.id)}, secret)).To(Succeed())
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data[join.KubeconfigKey])
	Expect(err).NotTo(HaveOccurred())
	out, err := client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return out
}

var _ = Describe("a cluster", func() {
	It("is heard of by its peer, through a Lease that it renews", func() {
		reader := as(a, b)
		lease := func() *coordinationv1.Lease {
			out := &coordinationv1.Lease{}
			if err := reader.Get(ctx(), types.NamespacedName{Namespace: "comity-b", Name: "b"}, out); err != nil {
				return nil
			}
			return out
		}
		Eventually(lease).ShouldNot(BeNil())
		first := lease()
		Expect(*first.Spec.HolderIdentity).To(Equal("b"))
		Expect(first.Annotations).To(HaveKeyWithValue(model.AnnotationClusterUID, string(b.uid())))
		for range 3 {
			before := lease().ResourceVersion
			Eventually(func() string { return lease().ResourceVersion }).ShouldNot(Equal(before))
		}
		Expect(lease().UID).To(Equal(first.UID))
	})

	It("knows what it is like", func() {
		Eventually(a.agent.home.Known()).Should(BeClosed())
		home := a.agent.home.Get()
		Expect(home.Families).To(Equal([]corev1.IPFamily{corev1.IPv4Protocol}))
		Expect(home.Zones).To(Equal([]string{"a-zone"}))
		Expect(home.PodCIDRs).To(Equal(a.Network().PodCIDRs[:1]))
		Expect(home.ServiceCIDRs).To(Equal(a.Network().ServiceCIDRs[:1]))

		told := make(chan struct{}, 1)
		a.agent.home.Changed().Subscribe(func(notify.Change) { told <- struct{}{} })
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "late", Labels: map[string]string{corev1.LabelTopologyZone: "z"}}}
		a.create(node)
		Eventually(told).Should(Receive())
		Expect(a.agent.home.Get().Zones).To(Equal([]string{"a-zone", "z"}))
		a.delete(node)
		Eventually(told).Should(Receive())
	})

	It("tells the exporter, and nobody else, that it imports", func() {
		ns := newNamespace(a, b)
		export := a.export(ns, "web")
		Eventually(said(ns, "web")).Should(Equal(imported))

		seen := &exchangev1alpha1.ImportRecord{}
		key := types.NamespacedName{Namespace: "comity-b-to-a", Name: model.RecordName(ns, "web")}
		Expect(as(a, b).Get(ctx(), key, seen)).To(Succeed(), "the exporter, with the credential that it has")
		Expect(seen.Spec.ExportUID).To(Equal(export.UID))
		Expect(seen.Spec.Message).To(BeEmpty())

		var all exchangev1alpha1.ImportRecordList
		Expect(b.client.List(ctx(), &all)).To(Succeed())
		var where []string
		for _, r := range all.Items {
			if r.Name == key.Name {
				where = append(where, r.Namespace)
			}
		}
		Expect(where).To(Equal([]string{"comity-b-to-a"}))

		_, third, err := join.Objects(nil, side(b), join.Cluster{ID: "c", Set: clusterset})
		Expect(err).NotTo(HaveOccurred())
		for _, o := range third[0] {
			Expect(client.IgnoreAlreadyExists(b.client.Create(ctx(), o))).To(Succeed())
		}
		for peer, may := range map[string]bool{"peer-a": true, "peer-c": false} {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "system:serviceaccount:" + system + ":" + peer,
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: key.Namespace, Name: key.Name, Verb: "get", Group: exchangev1alpha1.GroupVersion.Group, Resource: "importrecords",
				},
			}}
			Expect(b.client.Create(ctx(), review)).To(Succeed())
			Expect(review.Status.Allowed).To(Equal(may), "%s reads what is said to a", peer)
		}
	})

	It("tells what is missing until it is there, and nothing of what is exported no more", func() {
		ns := newNamespace(a)
		export := a.export(ns, "web")
		Eventually(said(ns, "web")).Should(Equal(model.ReasonNamespaceMissing + " false"))
		missing := record(ns, "web")
		Expect(missing.Spec.Message).To(ContainSubstring("create it there"))
		Consistently(func() string { return record(ns, "web").ResourceVersion }).Should(Equal(missing.ResourceVersion))

		b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
		Eventually(said(ns, "web")).Should(Equal(imported))
		Expect(record(ns, "web").UID).To(Equal(missing.UID))
		Expect(record(ns, "web").Spec.Message).To(BeEmpty())

		a.delete(export)
		Eventually(said(ns, "web")).Should(BeEmpty())
	})

	It("tells of a ServiceImport that is in the way", func() {
		ns := newNamespace(a, b)
		foreign := &mcsv1beta1.ServiceImport{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
			Spec:       mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Name: "http", Port: 80}}},
		}
		b.create(foreign)
		a.export(ns, "web")
		Eventually(said(ns, "web")).Should(Equal(model.ReasonForeignImport + " false"))
		b.delete(foreign)
		Eventually(said(ns, "web")).Should(Equal(imported))
	})

	It("mends what it said", func() {
		ns := newNamespace(a, b)
		a.export(ns, "web")
		Eventually(said(ns, "web")).Should(Equal(imported))
		b.delete(record(ns, "web"))
		Eventually(said(ns, "web")).Should(Equal(imported))
		changed := record(ns, "web")
		changed.Spec.Imported, changed.Spec.Reason = false, "Forged"
		Expect(b.client.Update(ctx(), changed)).To(Succeed())
		Eventually(said(ns, "web")).Should(Equal(imported))
	})

	It("hears where its exports arrived", func() {
		ns := newNamespace(a)
		a.export(ns, "web")
		key := types.NamespacedName{Namespace: ns, Name: "web"}
		destinations := func() []model.Report {
			out, _ := a.agent.running.Destinations(key)
			return out
		}
		Eventually(destinations).Should(ConsistOf(And(HaveField("Cluster", model.ClusterID("b")), HaveField("Reason", model.ReasonNamespaceMissing))))
		b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
		Eventually(destinations).Should(ConsistOf(And(HaveField("Imported", true), HaveField("Reason", model.ReasonImported))))
		a.agent.changed.mu.Lock()
		defer a.agent.changed.mu.Unlock()
		Expect(a.agent.changed.seen).To(HaveKey(key))
	})
})

var _ = Describe("a cluster that is restarted", Ordered, Serial, func() {
	const exports = 3
	var ns string
	BeforeAll(func() {
		ns = newNamespace(a, b)
		for n := range exports {
			a.export(ns, fmt.Sprintf("web-%d", n))
		}
		a.export(newNamespace(a), "nowhere")
		for n := range exports {
			Eventually(said(ns, fmt.Sprintf("web-%d", n))).Should(Equal(imported))
		}
	})

	It("without importing says so, and says otherwise once it imports", func() {
		b.stop()
		b.start(false)
		Eventually(said(ns, "web-0")).Should(Equal(model.ReasonImportDisabled + " false"))
		b.stop()
		b.start(true)
		b.awaitPeer()
		for n := range exports {
			Eventually(said(ns, fmt.Sprintf("web-%d", n))).Should(Equal(imported))
		}
	})

	It("on a converged clusterset writes nothing but its Lease (I3)", func() {
		writes := func(c *cluster, since time.Time) []controlplane.Write {
			GinkgoHelper()
			all, err := c.Writes(since)
			Expect(err).NotTo(HaveOccurred())
			var out []controlplane.Write
			for _, w := range all {
				if w.User == account && w.Resource != "coordination.k8s.io/leases" {
					out = append(out, w)
				}
			}
			return out
		}
		for _, c := range []*cluster{a, b} {
			Eventually(func() int { return len(writes(c, time.Now().Add(-settled))) }).Should(BeZero(), "cluster %s comes to rest", c.ID())
		}
		since := time.Now()
		for _, c := range []*cluster{a, b} {
			c.stop()
			c.start(true)
		}
		a.awaitPeer()
		b.awaitPeer()
		for n := range exports {
			Eventually(func() bool {
				_, ok := b.agent.running.Observe(types.NamespacedName{Namespace: ns, Name: fmt.Sprintf("web-%d", n)})
				return ok
			}).Should(BeTrue())
		}
		Consistently(func() []controlplane.Write { return append(writes(a, since), writes(b, since)...) }).Should(BeEmpty())
	})

	It("after a peer was removed meanwhile takes back what it said to it, and nothing else", func() {
		isRemoved := func(removed bool) {
			GinkgoHelper()
			peer := &exchangev1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
			Expect(b.client.Patch(ctx(), peer, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"removed":%t}}`, removed)))).To(Succeed())
		}
		other := &exchangev1alpha1.ImportRecord{ // another member's, in an API server that is a hub
			ObjectMeta: metav1.ObjectMeta{Namespace: "comity-x-to-a", Name: model.RecordName(ns, "web-0")},
			Spec: exchangev1alpha1.ImportRecordSpec{
				Service: exchangev1alpha1.ServiceReference{Namespace: ns, Name: "web-0"}, ExportUID: "u", Reason: "Other", Since: metav1.Now(),
			},
		}
		b.create(
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "comity-x-to-a", Labels: map[string]string{model.LabelExchangeFrom: "x"}}},
			&rbacv1.RoleBinding{ // so that it is not RBAC alone that keeps b from it
				ObjectMeta: metav1.ObjectMeta{Namespace: "comity-x-to-a", Name: "b"},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: system, Name: "comity"}},
			},
		)
		other.TypeMeta = metav1.TypeMeta{APIVersion: exchangev1alpha1.GroupVersion.String(), Kind: "ImportRecord"}
		//nolint:staticcheck // the typed variant needs generated configurations, which the records have none of
		Expect(b.client.Patch(ctx(), other, client.Apply, client.FieldOwner(model.FieldOwner))).To(Succeed())
		b.stop()
		isRemoved(true)
		DeferCleanup(func() {
			isRemoved(false)
			b.awaitPeer()
		})
		b.start(true)
		for n := range exports {
			Eventually(said(ns, fmt.Sprintf("web-%d", n))).Should(BeEmpty())
		}
		Expect(b.client.Get(ctx(), client.ObjectKeyFromObject(other), other)).To(Succeed(), "what another member said")
		// The agent writes the status of Peers with the rights that are installed.
		Eventually(func() []metav1.Condition {
			peer := &exchangev1alpha1.Peer{}
			Expect(b.client.Get(ctx(), types.NamespacedName{Name: "a"}, peer)).To(Succeed())
			return peer.Status.Conditions
		}).Should(ConsistOf(And(HaveField("Type", exchangev1alpha1.PeerRemoved), HaveField("Status", metav1.ConditionTrue))))
	})
})
