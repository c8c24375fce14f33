// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package admission is the load of the admission benchmark: a cluster with namespaces,
// Services and peers, and the requests that an API server sends to its webhook.
//
// It gives objects and AdmissionReviews of the size that they have in clusters, and a
// webhook that answers them with Comity's policies or with another engine. It starts
// no server and measures nothing.
package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
)

const (
	self         = "cluster-0"
	identity     = "comity.dev/identity"
	managedByYou = "kubectl-client-side-apply"
)

// created is when everything was.
var created = metav1.NewTime(time.Date(2026, 6, 1, 8, 0, 0, 0, time.UTC))

// World is one cluster of a clusterset. Every namespace exists in every cluster, with
// the same owner, and has one Service.
type World struct {
	members    []model.Member
	published  map[string]map[model.ClusterID]decision.PeerNamespace
	services   map[types.NamespacedName]*corev1.Service
	namespaces map[string]*corev1.Namespace
	names      []string
}

// NewWorld is a clusterset of that many clusters, with that many namespaces in each.
func NewWorld(clusters, namespaces int) *World {
	w := &World{
		published: map[string]map[model.ClusterID]decision.PeerNamespace{}, services: map[types.NamespacedName]*corev1.Service{}, namespaces: map[string]*corev1.Namespace{},
	}
	for n := 1; n < clusters; n++ {
		w.members = append(w.members, model.Member{
			ID: model.ClusterID(fmt.Sprintf("cluster-%d", n)), Synced: true, Reported: true,
			Labels: map[string]string{"cluster.clusterset.k8s.io": fmt.Sprintf("cluster-%d", n), "region": []string{"eu", "us", "ap"}[n%3], "tier": "production"},
		})
	}
	for n := range namespaces {
		name := fmt.Sprintf("team-%d", n)
		w.names = append(w.names, name)
		w.namespaces[name] = namespace(name)
		key := types.NamespacedName{Namespace: name, Name: "checkout"}
		w.services[key] = service(key)
		w.published[name] = map[model.ClusterID]decision.PeerNamespace{}
		for _, m := range w.members {
			w.published[name][m.ID] = decision.PeerNamespace{Presence: decision.Present, Labels: map[string]string{identity: "owner-" + name}}
		}
	}
	return w
}

// Members implements facts.Peers.
func (w *World) Members() []model.Member { return w.members }

// Namespace implements facts.Peers.
func (w *World) Namespace(name string) map[model.ClusterID]decision.PeerNamespace {
	return w.published[name]
}

// Get implements client.Reader as the cache of the agent does, which shares what its
// objects point to with whoever reads them so.
func (w *World) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch into := into.(type) {
	case *corev1.Service:
		if stored := w.services[key]; stored != nil {
			*into = *stored
			return nil
		}
	case *corev1.Namespace:
		if stored := w.namespaces[key.Name]; stored != nil {
			*into = *stored
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", into)}, key.String())
}

// List implements client.Reader; nothing lists here.
func (w *World) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("this reader lists nothing")
}

// Export is the n-th ServiceExport as it is stored. There are as many as one likes;
// each namespace has one with a Service.
func (w *World) Export(n int) *mcsv1beta1.ServiceExport {
	name := "checkout"
	if n >= len(w.names) {
		name = fmt.Sprintf("checkout-%d", n)
	}
	meta := objectMeta(types.NamespacedName{Namespace: w.names[n%len(w.names)], Name: name})
	return &mcsv1beta1.ServiceExport{
		TypeMeta:   metav1.TypeMeta{APIVersion: mcsv1beta1.GroupVersion.String(), Kind: mcsv1beta1.ServiceExportKindName},
		ObjectMeta: meta,
		Spec:       mcsv1beta1.ServiceExportSpec{ExportedLabels: map[string]string{"app.kubernetes.io/part-of": "shop"}},
	}
}

// Store stores that many exports, each with a Service.
func (w *World) Store(count int) []*mcsv1beta1.ServiceExport {
	var exports []*mcsv1beta1.ServiceExport
	for n := range count {
		export := w.Export(n)
		exports = append(exports, export)
		key := client.ObjectKeyFromObject(export)
		w.services[key] = service(key)
	}
	return exports
}

// Review is the body of the request that creates the n-th export.
func (w *World) Review(n int) ([]byte, error) {
	object, err := json.Marshal(w.Export(n))
	if err != nil {
		return nil, err
	}
	export := w.Export(n)
	kind := metav1.GroupVersionKind{Group: mcsv1beta1.GroupName, Version: "v1beta1", Kind: mcsv1beta1.ServiceExportKindName}
	resource := metav1.GroupVersionResource{Group: mcsv1beta1.GroupName, Version: "v1beta1", Resource: "serviceexports"}
	return json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID:  types.UID(fmt.Sprintf("0df28fbd-5f5f-11e8-bc74-%012d", n)),
			Kind: kind, Resource: resource, RequestKind: &kind, RequestResource: &resource,
			Name: export.Name, Namespace: export.Namespace, Operation: admissionv1.Create,
			UserInfo: authenticationv1.UserInfo{
				Username: "system:serviceaccount:argocd:argocd-application-controller", UID: "a2e2a6e4-6f4f-4d3c-9a53-6a3f7b7a9c11",
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:argocd", "system:authenticated"},
				Extra: map[string]authenticationv1.ExtraValue{
					"authentication.kubernetes.io/pod-name": {"argocd-application-controller-0"},
					"authentication.kubernetes.io/pod-uid":  {"5a5f2c8e-47f9-4f0f-8a35-0f0b6f3c7a10"},
				},
			},
			Object:  runtime.RawExtension{Raw: object},
			DryRun:  ptr.To(false),
			Options: runtime.RawExtension{Raw: []byte(`{"kind":"PatchOptions","apiVersion":"meta.k8s.io/v1","force":true,"fieldManager":"argocd-controller"}`)},
		},
	})
}

func objectMeta(key types.NamespacedName) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, UID: types.UID("7c0e3a55-9f0c-4bb1-8c57-" + key.Name), Generation: 1, ResourceVersion: "123456",
		CreationTimestamp: created,
		Labels: map[string]string{
			"app.kubernetes.io/name": key.Name, "app.kubernetes.io/instance": key.Namespace, "app.kubernetes.io/managed-by": "Helm",
			"argocd.argoproj.io/instance": key.Namespace,
		},
		Annotations: map[string]string{
			"kubectl.kubernetes.io/last-applied-configuration": fmt.Sprintf(`{"apiVersion":"v1","kind":"Object","metadata":{"annotations":{},"labels":`+
				`{"app.kubernetes.io/name":%[2]q,"app.kubernetes.io/instance":%[1]q},"name":%[2]q,"namespace":%[1]q}}`, key.Namespace, key.Name),
			"meta.helm.sh/release-name": key.Namespace,
		},
		ManagedFields: []metav1.ManagedFieldsEntry{
			managed(managedByYou, "v1", metav1.ManagedFieldsOperationUpdate, ""),
			managed("argocd-controller", "v1", metav1.ManagedFieldsOperationApply, ""),
			managed("comity", "v1", metav1.ManagedFieldsOperationApply, "status"),
		},
	}
}

func managed(manager, version string, operation metav1.ManagedFieldsOperationType, subresource string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, APIVersion: version, Operation: operation, Subresource: subresource, Time: &created, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{".":{},"f:kubectl.kubernetes.io/last-applied-configuration":{},"f:meta.helm.sh/release-name":{}},` +
			`"f:labels":{".":{},"f:app.kubernetes.io/name":{},"f:app.kubernetes.io/instance":{},"f:app.kubernetes.io/managed-by":{},"f:argocd.argoproj.io/instance":{}}},` +
			`"f:spec":{".":{},"f:exportedLabels":{".":{},"f:app.kubernetes.io/part-of":{}}}}`),
	}
}

func namespace(name string) *corev1.Namespace {
	meta := objectMeta(types.NamespacedName{Name: name})
	meta.Labels[identity] = "owner-" + name
	meta.Labels["kubernetes.io/metadata.name"] = name
	return &corev1.Namespace{
		ObjectMeta: meta,
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	}
}

func service(key types.NamespacedName) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: objectMeta(key),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.17.4", ClusterIPs: []string{"10.96.17.4"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack),
			Ports: []corev1.ServicePort{
				{Name: "http", Protocol: corev1.ProtocolTCP, AppProtocol: ptr.To("http"), Port: 80, TargetPort: intstr.FromString("http")},
				{Name: "metrics", Protocol: corev1.ProtocolTCP, Port: 9090, TargetPort: intstr.FromInt32(9090)},
			},
			Selector:        map[string]string{"app.kubernetes.io/name": key.Name, "app.kubernetes.io/instance": key.Namespace},
			SessionAffinity: corev1.ServiceAffinityNone, InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyCluster),
		},
	}
}
