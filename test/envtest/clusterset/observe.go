// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package clusterset

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/envtest/suite"
	"github.com/comity-mcs/comity/test/install"
)

// Create creates objects as an administrator.
func (m *Member) Create(ctx context.Context, objects ...client.Object) {
	ginkgo.GinkgoHelper()
	for _, o := range objects {
		gomega.Expect(suite.Evaluated(func() error { return m.Client.Create(ctx, o) })).To(gomega.Succeed(), "create %T %s in cluster %s", o, o.GetName(), m.ID())
	}
}

// Get reads an object. It waits for one that is not there yet: of what is made
// of an export, some is there before the rest.
func Get[T client.Object](ctx context.Context, m *Member, o T) T {
	ginkgo.GinkgoHelper()
	gomega.Eventually(ctx, func() error { return m.Client.Get(ctx, client.ObjectKeyFromObject(o), o) }).
		Should(gomega.Succeed(), "read %T %s in cluster %s", o, o.GetName(), m.ID())
	return o
}

// Change reads an object, changes it and writes it, until nobody comes in between.
func Change[T client.Object](ctx context.Context, m *Member, o T, change func(T)) {
	ginkgo.GinkgoHelper()
	gomega.Eventually(ctx, func() error {
		if err := m.Client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		change(o)
		return m.Client.Update(ctx, o)
	}).Should(gomega.Succeed(), "change %T %s in cluster %s", o, o.GetName(), m.ID())
}

// Slices are those of a service of the clusterset that m has from anywhere.
func (m *Member) Slices(ctx context.Context, namespace, name string) []discoveryv1.EndpointSlice {
	ginkgo.GinkgoHelper()
	var list discoveryv1.EndpointSliceList
	gomega.Expect(m.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{
		model.LabelServiceName: name, discoveryv1.LabelManagedBy: model.ManagedBy,
	})).To(gomega.Succeed())
	return list.Items
}

// Backends are the addresses that m has for a service of the clusterset, each
// after the cluster that it is in, and before "!" if it is not ready.
func (m *Member) Backends(namespace, name string) func(gomega.Gomega, context.Context) []string {
	return func(g gomega.Gomega, ctx context.Context) []string {
		var list discoveryv1.EndpointSliceList
		g.Expect(m.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{
			model.LabelServiceName: name, discoveryv1.LabelManagedBy: model.ManagedBy,
		})).To(gomega.Succeed())
		return backends(list.Items)
	}
}

// AllBackends are those of all services in a namespace.
func (m *Member) AllBackends(ctx context.Context, namespace string) []string {
	ginkgo.GinkgoHelper()
	var list discoveryv1.EndpointSliceList
	gomega.Expect(m.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{discoveryv1.LabelManagedBy: model.ManagedBy})).To(gomega.Succeed())
	return backends(list.Items)
}

func backends(items []discoveryv1.EndpointSlice) []string {
	out := []string{}
	for _, s := range items {
		for _, e := range s.Endpoints {
			text := s.Labels[model.LabelSourceCluster] + "/" + e.Addresses[0]
			if !ptr.Deref(e.Conditions.Ready, true) {
				text += "!"
			}
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return out
}

// ExportCondition is a condition as "Status/Reason: message"; empty while it is not set.
func (m *Member) ExportCondition(namespace, name, kind string) func(gomega.Gomega, context.Context) string {
	return func(g gomega.Gomega, ctx context.Context) string {
		e := Export(namespace, name)
		g.Expect(m.Client.Get(ctx, client.ObjectKeyFromObject(e), e)).To(gomega.Succeed())
		return describe(meta.FindStatusCondition(e.Status.Conditions, kind))
	}
}

// ImportCondition is the same of a ServiceImport.
func (m *Member) ImportCondition(namespace, name, kind string) func(gomega.Gomega, context.Context) string {
	return func(g gomega.Gomega, ctx context.Context) string {
		i := Import(namespace, name)
		g.Expect(m.Client.Get(ctx, client.ObjectKeyFromObject(i), i)).To(gomega.Succeed())
		return describe(meta.FindStatusCondition(i.Status.Conditions, kind))
	}
}

// PeerCondition is the same of a Peer; empty if there is none.
func (m *Member) PeerCondition(id, kind string) func(gomega.Gomega, context.Context) string {
	return func(g gomega.Gomega, ctx context.Context) string {
		p := Peer(id)
		g.Expect(client.IgnoreNotFound(m.Client.Get(ctx, client.ObjectKeyFromObject(p), p))).To(gomega.Succeed())
		return describe(meta.FindStatusCondition(p.Status.Conditions, kind))
	}
}

// ChangePeer changes the spec of a Peer of m.
func (m *Member) ChangePeer(ctx context.Context, id string, change func(*exchangev1alpha1.PeerSpec)) {
	ginkgo.GinkgoHelper()
	Change(ctx, m, Peer(id), func(p *exchangev1alpha1.Peer) { change(&p.Spec) })
}

// ConfirmMissing confirms that what is missing of a peer of m until now is gone.
func (m *Member) ConfirmMissing(ctx context.Context, id string) {
	ginkgo.GinkgoHelper()
	now := metav1.Now()
	m.ChangePeer(ctx, id, func(s *exchangev1alpha1.PeerSpec) { s.ConfirmMissingBefore = &now })
}

func describe(c *metav1.Condition) string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s/%s: %s", c.Status, c.Reason, c.Message)
}

// Derived is the derived Service of an import as its ServiceImport names it.
func (m *Member) Derived(ctx context.Context, namespace, name string) *corev1.Service {
	ginkgo.GinkgoHelper()
	named := Get(ctx, m, Import(namespace, name)).Annotations[model.AnnotationDerivedName]
	return Get(ctx, m, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: named}})
}

// AgentWrites are the writes in m by agents, m's own and those of its peers,
// but for events, leader election and heartbeats.
func (m *Member) AgentWrites(since time.Time) []controlplane.Write {
	ginkgo.GinkgoHelper()
	all, err := m.Writes(since)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	var out []controlplane.Write
	for _, w := range all {
		aside := w.Resource == "coordination.k8s.io/leases" || strings.HasSuffix(w.Resource, "events")
		if strings.HasPrefix(w.User, "system:serviceaccount:"+install.Namespace+":") && !aside {
			out = append(out, w)
		}
	}
	return out
}

// Describe is one line for each write.
func Describe(writes []controlplane.Write) []string {
	out := []string{}
	for _, w := range writes {
		out = append(out, fmt.Sprintf("%s %s %s/%s (%d) by %s", w.Verb, w.Resource, w.Namespace, w.Name, w.Code, w.User))
	}
	return out
}

// Export is a ServiceExport without annotations; Import names a ServiceImport.
func Export(namespace, name string) *mcsv1beta1.ServiceExport {
	return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// Import names a ServiceImport.
func Import(namespace, name string) *mcsv1beta1.ServiceImport {
	return &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// Peer names a Peer.
func Peer(id string) *exchangev1alpha1.Peer {
	return &exchangev1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: id}}
}

// Namespace is an empty one.
func Namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// Service is one without selector, with port 80 called http.
func Service(namespace, name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}},
	}
}

// Endpoints is a slice of IPv4 addresses made by hand, on port number called http.
func Endpoints(namespace, service, name string, port int32, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(port), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}})
	}
	return s
}
