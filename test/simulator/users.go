// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/simulator/agent"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

// What users and the controllers of Kubernetes put into a cluster.

func meta(key types.NamespacedName) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
}

func exportOf(key types.NamespacedName) *mcsv1beta1.ServiceExport {
	return &mcsv1beta1.ServiceExport{
		TypeMeta: metav1.TypeMeta{APIVersion: mcsv1beta1.GroupVersion.String(), Kind: "ServiceExport"}, ObjectMeta: meta(key),
	}
}

func serviceOf(key types.NamespacedName, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta(key),
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, SessionAffinity: corev1.ServiceAffinityNone, Ports: ports},
	}
}

func port(name string, number int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: number, Protocol: corev1.ProtocolTCP}
}

// sliceOf is a slice of a Service of cluster number n with endpoints of the
// numbers from first on.
func sliceOf(service *corev1.Service, name string, cluster, first, count int) *discoveryv1.EndpointSlice {
	yes := true
	s := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: name, Labels: map[string]string{
			discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io", "app": "web",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for i := range service.Spec.Ports {
		p := &service.Spec.Ports[i]
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &p.Port, Protocol: &p.Protocol})
	}
	for i := first; i < first+count; i++ {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 1+cluster, i/250, i%250+1)}, Conditions: discoveryv1.EndpointConditions{Ready: &yes},
		})
	}
	return s
}

func (w *World) number(c *Cluster) int {
	for i, id := range w.ids {
		if id == c.ID {
			return i
		}
	}
	return 0
}

// put writes as a user. What the API server refuses, such as an object in a
// namespace that is going, is the user's problem.
func (w *World) put(c *Cluster, o client.Object) bool { return c.Server.Put("user", o) == nil }

func (w *World) drop(c *Cluster, kind string, key types.NamespacedName) {
	c.Server.Remove("user", apiserver.Ref{Kind: kind, Namespace: key.Namespace, Name: key.Name})
}

func find[T any](c *Cluster, kind string, key types.NamespacedName) *T {
	o, _ := any(c.Server.Get(apiserver.Ref{Kind: kind, Namespace: key.Namespace, Name: key.Name})).(*T)
	return o
}

func (w *World) key() types.NamespacedName { return w.opts.Keys[w.n(len(w.opts.Keys), "key")] }

// user does something that users do with their own objects.
func (w *World) user(c *Cluster) {
	key := w.key()
	service := find[corev1.Service](c, "Service", key)
	switch w.n(8, "user does") {
	case 0, 1:
		w.put(c, w.scoped(exportOf(key)))
		if service == nil {
			w.newService(c, key)
		}
	case 2:
		w.drop(c, "ServiceExport", key)
	case 3:
		w.newService(c, key)
	case 4:
		w.drop(c, "Service", key)
	case 5:
		if export := find[mcsv1beta1.ServiceExport](c, "ServiceExport", key); export != nil {
			export = export.DeepCopy()
			export.Spec.ExportedLabels = map[string]string{"team": []string{"red", "blue"}[w.n(2, "team")]}
			w.put(c, w.scoped(export))
		}
	default:
		if service != nil {
			w.scale(c, service)
		}
	}
}

// scoped limits an export to some clusters and ports, or to none in particular.
func (w *World) scoped(export *mcsv1beta1.ServiceExport) *mcsv1beta1.ServiceExport {
	export.Annotations = nil
	if w.n(3, "scoped") == 0 {
		to := w.ids[w.n(len(w.ids), "to")]
		also := w.ids[w.n(len(w.ids), "and to")]
		export.Annotations = map[string]string{model.AnnotationExportTo: string(to) + "," + string(also)}
	}
	if w.opts.Ports && w.n(3, "ports named") == 0 {
		if export.Annotations == nil {
			export.Annotations = map[string]string{}
		}
		export.Annotations[model.AnnotationExportPorts] = []string{"http", "admin", "http, admin", "http,metrics", "http,,admin"}[w.n(5, "ports")]
	}
	return export
}

// newService makes or changes a Service, and its slices with it.
func (w *World) newService(c *Cluster, key types.NamespacedName) {
	service := serviceOf(key)
	number := int32(80 + w.n(3, "number"))
	switch w.n(4, "ports") {
	case 0:
		service.Spec.Ports = []corev1.ServicePort{port("", number)}
	case 1:
		service.Spec.Ports = []corev1.ServicePort{port("http", number), port("admin", 90)}
	default:
		service.Spec.Ports = []corev1.ServicePort{port("http", number)}
	}
	if w.n(3, "affinity") == 0 {
		service.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		seconds := int32(10)
		service.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
	if w.n(4, "headless") == 0 {
		service.Spec.ClusterIP = corev1.ClusterIPNone
	}
	if w.n(5, "policy") == 0 {
		local := corev1.ServiceInternalTrafficPolicyLocal
		service.Spec.InternalTrafficPolicy = &local
	}
	if old := find[corev1.Service](c, "Service", key); old != nil {
		if (old.Spec.ClusterIP == corev1.ClusterIPNone) != (service.Spec.ClusterIP == corev1.ClusterIPNone) {
			w.drop(c, "Service", key)
		} else {
			service.Spec.ClusterIP = old.Spec.ClusterIP
		}
	}
	if w.put(c, service) {
		w.scale(c, service)
	}
}

// scale gives a Service up to three slices of few endpoints.
func (w *World) scale(c *Cluster, service *corev1.Service) {
	for i := range 3 {
		name := fmt.Sprintf("%s-%d", service.Name, i)
		count := w.n(4, "endpoints")
		s := sliceOf(service, name, w.number(c), 10*i+w.n(2, "first"), count)
		if i == 2 && w.opts.Families && (w.n(2, "second family") == 0 || !w.opts.Retype) {
			s.AddressType = discoveryv1.AddressTypeIPv6
			for n := range s.Endpoints {
				s.Endpoints[n].Addresses = []string{fmt.Sprintf("fd01::%d:%d", w.number(c)+1, n+1)}
			}
		}
		key := types.NamespacedName{Namespace: service.Namespace, Name: name}
		old := find[discoveryv1.EndpointSlice](c, "EndpointSlice", key)
		if count == 0 || old != nil && old.AddressType != s.AddressType {
			w.drop(c, "EndpointSlice", key)
		}
		if count > 0 {
			w.put(c, s)
		}
	}
}

// foreign puts an object of somebody else where Comity would like one of its
// own, or takes one away.
func (w *World) foreign(c *Cluster) {
	key := w.key()
	derived := model.DerivedName(key.Name)
	from := w.ids[w.n(len(w.ids), "from")]
	at := func(name string) types.NamespacedName {
		return types.NamespacedName{Namespace: key.Namespace, Name: name}
	}
	var o client.Object
	switch w.n(5, "foreign") {
	case 0:
		o = serviceOf(at(derived), port("http", 80))
	case 1:
		o = serviceOf(at(model.AlternateDerivedName(key.Name)), port("http", 80))
	case 2:
		o = &mcsv1beta1.ServiceImport{TypeMeta: metav1.TypeMeta{APIVersion: mcsv1beta1.GroupVersion.String(), Kind: "ServiceImport"}, ObjectMeta: meta(key)}
	case 3:
		o = sliceOf(serviceOf(at(derived), port("http", 80)), model.SliceName(derived, true, from, ""), 99, 0, 1)
	case 4:
		o = sliceOf(serviceOf(at(derived), port("http", 80)), model.SliceName(derived, false, from, key.Name+"-0"), 99, 0, 1)
	}
	if w.n(2, "with our labels") == 0 {
		o.SetLabels(map[string]string{
			model.LabelServiceName: key.Name, model.LabelSourceCluster: string(from), model.LabelServiceImported: "true",
			discoveryv1.LabelManagedBy: model.ManagedBy, "app.kubernetes.io/managed-by": model.ManagedBy,
		})
	}
	switch there := c.Server.Get(apiserver.RefOf(o)); {
	case there == nil:
		w.put(c, o)
	case !model.IsManaged(there) || w.n(3, "in its place") == 0:
		c.Server.Remove("user", apiserver.RefOf(o))
		if w.n(2, "again") == 0 {
			w.put(c, o)
		}
	}
}

// meddle changes one of our objects as a user with all rights may.
func (w *World) meddle(c *Cluster) {
	var ours []client.Object
	for _, kind := range agent.LocalKinds {
		for _, o := range c.Server.List(kind, "") {
			if model.IsManaged(o) {
				ours = append(ours, o)
			}
		}
	}
	if len(ours) == 0 {
		return
	}
	o, _ := ours[w.n(len(ours), "object")].DeepCopyObject().(client.Object)
	if o.GetLabels() == nil {
		o.SetLabels(map[string]string{})
	}
	switch w.n(8, "meddle") {
	case 0, 1:
		if !strings.HasPrefix(o.GetNamespace(), "comity-") { // a record that vanishes is a withdrawal
			c.Server.Remove("user", apiserver.RefOf(o))
		}
		return
	case 2:
		o.GetLabels()["mine"] = "yes"
	case 3:
		delete(o.GetLabels(), model.LabelServiceName)
	case 4:
		delete(o.GetLabels(), model.LabelSourceCluster)
	case 5:
		delete(o.GetAnnotations(), model.AnnotationApplied)
	case 6:
		if o.GetAnnotations() != nil {
			o.GetAnnotations()[model.AnnotationSourceSlice] = "nonsense"
		}
	case 7:
		meddleWithSpec(o)
	}
	w.put(c, o)
}

func meddleWithSpec(o client.Object) {
	switch o := o.(type) {
	case *corev1.Service:
		o.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		o.Spec.Ports = append(o.Spec.Ports[:0:0], port("theirs", 7))
	case *discoveryv1.EndpointSlice:
		if o.Namespace[:1] != "c" { // copies in the exchange are what peers believe
			o.Endpoints = nil
		}
	case *mcsv1beta1.ServiceImport:
		o.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}
}

// endNamespace lets a user namespace go a step further towards its end, or come
// into being again.
func (w *World) endNamespace(c *Cluster) {
	name := w.key().Namespace
	ref := apiserver.Ref{Kind: "Namespace", Name: name}
	switch o := c.Server.Get(ref); {
	case o == nil:
		w.namespace(c, name, "")
	case o.GetDeletionTimestamp() == nil:
		if w.n(3, "delete the namespace") == 0 {
			c.Server.Remove("user", ref)
		}
	default:
		for range 1 + w.n(8, "objects") {
			c.Server.Finalize(name)
		}
	}
}

func asService(o client.Object) *corev1.Service {
	s, _ := o.(*corev1.Service)
	return s
}
