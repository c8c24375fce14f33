// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

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

	"github.com/comity-mcs/comity/sync/model"
)

// number makes names and addresses that nothing else has.
var number atomic.Int64

func service(namespace, name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}},
	}
}

func headless(namespace, name string) *corev1.Service {
	s := service(namespace, name)
	s.Spec.ClusterIP = corev1.ClusterIPNone
	return s
}

func export(namespace, name string) *mcsv1beta1.ServiceExport {
	return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func scoped(namespace, name, to string) *mcsv1beta1.ServiceExport {
	e := export(namespace, name)
	e.Annotations = map[string]string{model.AnnotationExportTo: to}
	return e
}

// endpoints is a slice as the EndpointSlice controller writes them.
func endpoints(namespace, service, name string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
		})
	}
	return s
}

// newAddress is an address of a Pod of m that nothing else has.
func newAddress() string {
	n := number.Add(1)
	return fmt.Sprintf("10.99.%d.%d", n/250, n%250+1)
}

// backends are the addresses that m has for a service of the clusterset, each
// with the cluster that it is in.
func (m *member) backends(namespace, name string) func(Gomega, context.Context) []string {
	return func(g Gomega, ctx context.Context) []string {
		var list discoveryv1.EndpointSliceList
		g.Expect(m.client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{
			model.LabelServiceName: name, discoveryv1.LabelManagedBy: model.ManagedBy,
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

// condition is a condition of an export as "Status/Reason: message"; empty while it is not set.
func (m *member) condition(namespace, name, kind string) func(Gomega, context.Context) string {
	return func(g Gomega, ctx context.Context) string {
		e := export(namespace, name)
		g.Expect(m.client.Get(ctx, client.ObjectKeyFromObject(e), e)).To(Succeed())
		return describe(meta.FindStatusCondition(e.Status.Conditions, kind))
	}
}

// importReady is the same for Ready of an import.
func (m *member) importReady(namespace, name string) func(Gomega, context.Context) string {
	return func(g Gomega, ctx context.Context) string {
		i := &mcsv1beta1.ServiceImport{}
		g.Expect(m.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, i)).To(Succeed())
		return describe(meta.FindStatusCondition(i.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady)))
	}
}

func describe(c *metav1.Condition) string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s/%s: %s", c.Status, c.Reason, c.Message)
}

// derived is the derived Service of an import as its ServiceImport names it.
func (m *member) derived(ctx context.Context, namespace, name string) string {
	GinkgoHelper()
	i := &mcsv1beta1.ServiceImport{}
	Expect(m.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, i)).To(Succeed())
	return i.Annotations[model.AnnotationDerivedName]
}

const healthyNamespace = "healthy"

// keepHealthyExports makes one export in each cluster, which must work whatever
// happens beside it.
func keepHealthyExports(ctx context.Context) {
	GinkgoHelper()
	for _, m := range members {
		m.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: healthyNamespace}})
	}
	for _, id := range ids {
		name := "from-" + id
		members[id].create(ctx, service(healthyNamespace, name), endpoints(healthyNamespace, name, name+"-x", newAddress()))
		Eventually(func() error { return members[id].client.Create(ctx, export(healthyNamespace, name)) }).Should(Succeed())
	}
	everythingElseWorks(ctx)
}

// everythingElseWorks changes an endpoint in a and one in b, and expects that
// the other cluster follows.
func everythingElseWorks(ctx context.Context) {
	GinkgoHelper()
	for from, to := range map[string]string{"a": "b", "b": "a"} {
		name, address := "from-"+from, newAddress()
		Expect(members[from].client.Update(ctx, endpoints(healthyNamespace, name, name+"-x", address))).To(Succeed())
		Eventually(members[to].backends(healthyNamespace, name)).WithContext(ctx).Should(Equal([]string{from + "/" + address}),
			"an export from %s to %s that nothing is wrong with", from, to)
	}
}

// oneMessage expects an error with every part that complains of one thing.
func oneMessage(err error, parts ...string) {
	GinkgoHelper()
	Expect(err).To(MatchError(containAll(parts)))
	Expect(strings.Count(err.Error(), "Remedy: ")).To(Equal(1), "%v", err)
}

func newNumber() string { return fmt.Sprint(number.Add(1)) }

func containAll(parts []string) gomegatypes.GomegaMatcher {
	all := make([]gomegatypes.GomegaMatcher, len(parts))
	for i, part := range parts {
		all[i] = ContainSubstring(part)
	}
	return And(all...)
}
