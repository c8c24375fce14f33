// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/merge"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

func ptr[T any](v T) *T { return &v }

func keyOf(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

// clusterset builds the input of one import, cluster by cluster, oldest first.
type clusterset struct {
	key     types.NamespacedName
	exports []model.Export
	slices  map[model.ClusterID][]*discoveryv1.EndpointSlice
	unread  []model.ClusterID
}

func importOf(name string) *clusterset {
	return &clusterset{key: keyOf(name), slices: map[model.ClusterID][]*discoveryv1.EndpointSlice{}}
}

// export adds the export of a cluster with its ports and its slices.
func (s *clusterset) export(cluster model.ClusterID, ports []mcsv1beta1.ServicePort, slices ...*discoveryv1.EndpointSlice) *clusterset {
	s.exports = append(s.exports, model.Export{
		SourceExport:      model.SourceExport{Cluster: cluster, UID: types.UID(cluster), CreatedAt: time.Unix(int64(1000+len(s.exports)), 0)},
		Key:               s.key,
		ServiceProperties: model.ServiceProperties{Type: mcsv1beta1.ClusterSetIP, Ports: ports, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}},
	})
	s.slices[cluster] = slices
	return s
}

// edit changes the export that was added last.
func (s *clusterset) edit(change func(e *model.Export)) *clusterset {
	change(&s.exports[len(s.exports)-1])
	return s
}

func (s *clusterset) notRead(ids ...model.ClusterID) *clusterset {
	s.unread = append(s.unread, ids...)
	return s
}

// in is the input as cluster a sees it, without what exists there.
func (s *clusterset) in() plan.ImportInput {
	desired, _ := merge.ResolveInOrder(merge.OldestFirst(s.exports))
	return plan.ImportInput{Key: s.key, Self: "a", Desired: desired, Sources: s.slices, Unsynced: sets.New(s.unread...)}
}

func port(name string, number int32) mcsv1beta1.ServicePort {
	return mcsv1beta1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: number}
}

func ports(p ...mcsv1beta1.ServicePort) []mcsv1beta1.ServicePort { return p }

func http() []mcsv1beta1.ServicePort { return ports(port("http", 80)) }

// slice is a slice with the ports of those names, at target ports, and with
// everything that must not cross over.
func slice(name string, portNames []string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name,
			Labels: map[string]string{
				"app": "web", "kubernetes.io/service-name": "web", "service.kubernetes.io/headless": "",
				"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io", "comity.dev/export-name": "web",
				"app.kubernetes.io/instance": "shop", "argocd.argoproj.io/instance": "shop", "helm.toolkit.fluxcd.io/name": "shop", "helm.sh/chart": "web",
			},
			Annotations: map[string]string{"endpoints.kubernetes.io/last-change-trigger-time": "2025-01-01T00:00:00Z"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for i, name := range portNames {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr(name), Protocol: ptr(corev1.ProtocolTCP), Port: ptr(int32(8000 + i))})
	}
	for i, address := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{address}, Hostname: ptr(fmt.Sprintf("web-%d", i)), Zone: ptr("zone-1"), NodeName: ptr("node-1"),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr(true), Serving: ptr(true), Terminating: ptr(false)},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Name: "web-0"},
			Hints:      &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "zone-1"}}},
		})
	}
	return s
}

// copyOf is a slice as a peer publishes it.
func copyOf(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s.Annotations = map[string]string{model.AnnotationSourceSlice: s.Name}
	s.Name = "default." + s.Name
	s.Namespace = "comity-x"
	return s
}

func foreignService(name string) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
	}
}

func foreignSlice(name, service, cluster string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{
			model.LabelServiceName: service, model.LabelSourceCluster: cluster, discoveryv1.LabelManagedBy: model.ManagedBy,
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
}

func foreignImport(name string) *mcsv1beta1.ServiceImport {
	return &mcsv1beta1.ServiceImport{
		TypeMeta:   metav1.TypeMeta{APIVersion: mcsv1beta1.GroupVersion.String(), Kind: "ServiceImport"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
	}
}
