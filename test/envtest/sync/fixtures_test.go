// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

var namespaceNumber atomic.Int64

// newNamespace makes a namespace of one name in the given clusters. What is exported there
// is withdrawn when the spec ends: agents that start look at everything that is left.
func newNamespace(in ...model.ClusterID) string {
	GinkgoHelper()
	name := fmt.Sprintf("shop-%d", namespaceNumber.Add(1))
	for _, id := range in {
		clusters[id].create(namespaced(name, nil))
		DeferCleanup(func() {
			Expect(clusters[id].client.DeleteAllOf(ctx(), &mcsv1beta1.ServiceExport{}, client.InNamespace(name))).To(Succeed())
		})
	}
	return name
}

// service is a ClusterIP Service with one port; change makes it another.
func service(namespace, name string, change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func headless(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }

func export(namespace, name string, to ...string) *mcsv1beta1.ServiceExport {
	e := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if len(to) > 0 {
		e.Annotations = map[string]string{model.AnnotationExportTo: strings.Join(to, ",")}
	}
	return e
}

// annotate writes the annotations of an object, and no other ones: its status is written
// meanwhile.
func (c *cluster) annotate(o client.Object) {
	GinkgoHelper()
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/metadata/annotations", "value": annotations}})
	Expect(err).NotTo(HaveOccurred())
	Expect(c.client.Patch(ctx(), o, client.RawPatch(types.JSONPatchType, patch))).To(Succeed())
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
			Addresses: []string{a}, NodeName: ptr.To("node-1"), Zone: ptr.To("zone-1"),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
		})
	}
	return s
}

// read gives an object, or nil while it does not exist.
func read[T any, P interface {
	*T
	client.Object
}](c *cluster, namespace, name string) P {
	object := P(new(T))
	if err := c.client.Get(ctx(), types.NamespacedName{Namespace: namespace, Name: name}, object); err != nil {
		return nil
	}
	return object
}

func (c *cluster) serviceImport(namespace, name string) *mcsv1beta1.ServiceImport {
	return read[mcsv1beta1.ServiceImport](c, namespace, name)
}

// derivedSlices are the imported slices of a Service, by name.
func (c *cluster) derivedSlices(namespace, name string) []discoveryv1.EndpointSlice {
	GinkgoHelper()
	var list discoveryv1.EndpointSliceList
	Expect(c.client.List(ctx(), &list, client.InNamespace(namespace), client.MatchingLabels{model.LabelServiceName: name})).To(Succeed())
	slices.SortFunc(list.Items, func(a, b discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	return list.Items
}

// backends are the addresses of the imported slices, each with its source cluster.
func (c *cluster) backends(namespace, name string) func() []string {
	return func() []string {
		out := []string{}
		for _, s := range c.derivedSlices(namespace, name) {
			for _, e := range s.Endpoints {
				out = append(out, s.Labels[model.LabelSourceCluster]+"/"+e.Addresses[0])
			}
		}
		slices.Sort(out)
		return out
	}
}

// ownedIn names what agents made in a namespace, in whatever cluster.
func (c *cluster) ownedIn(namespace string) []string {
	GinkgoHelper()
	out := map[string]bool{}
	for _, list := range []client.ObjectList{&corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}, &mcsv1beta1.ServiceImportList{}} {
		Expect(c.client.List(ctx(), list, client.InNamespace(namespace))).To(Succeed())
		Expect(meta.EachListItem(list, func(item runtime.Object) error {
			if o := item.(client.Object); model.IsManaged(o) {
				out[fmt.Sprintf("%T %s", o, o.GetName())] = true
			}
			return nil
		})).To(Succeed())
	}
	return slices.Sorted(maps.Keys(out))
}

// records names the exchange namespaces in which an export is published, by record and
// by slice, and those that state its withdrawal.
func (c *cluster) records(namespace, name string) []string {
	GinkgoHelper()
	out := []string{}
	var records exchangev1alpha1.ExportRecordList
	Expect(c.client.List(ctx(), &records)).To(Succeed())
	for _, r := range records.Items {
		switch {
		case r.Name != model.RecordName(namespace, name):
		case r.Spec.Withdrawn:
			out = append(out, "withdrawal in "+r.Namespace)
		default:
			out = append(out, "record in "+r.Namespace)
		}
	}
	var copies discoveryv1.EndpointSliceList
	Expect(c.client.List(ctx(), &copies, client.MatchingLabels{model.LabelExportNamespace: namespace, model.LabelExportName: name})).To(Succeed())
	for _, s := range copies.Items {
		out = append(out, "slice in "+s.Namespace)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
