// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/comity-mcs/comity/sync/model"
)

// labelHeadless is the one label by which kube-proxy leaves a slice out of its
// watch; a copy in the exchange serves nobody in the cluster that holds it.
const labelHeadless = "service.kubernetes.io/headless"

// CopySlice is source, a slice of the exported Service key, as it is published:
// without what only its own cluster understands (node names, object references,
// hints) and without any label that another controller reads; other labels stay.
// False for a slice of host names, which a clusterset cannot serve (KEP-1645).
func CopySlice(key types.NamespacedName, source *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, bool) {
	if source.AddressType != discoveryv1.AddressTypeIPv4 && source.AddressType != discoveryv1.AddressTypeIPv6 {
		return nil, false
	}
	labels := map[string]string{
		labelHeadless:              "",
		discoveryv1.LabelManagedBy: model.ManagedBy,
		model.LabelExportNamespace: key.Namespace,
		model.LabelExportName:      key.Name,
	}
	for label, value := range source.Labels {
		if !model.ReservedLabel(label) {
			labels[label] = value
		}
	}
	return &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        model.RecordSliceName(source.Namespace, source.Name),
			Labels:      labels,
			Annotations: map[string]string{model.AnnotationSourceSlice: source.Name},
		},
		AddressType: source.AddressType,
		Endpoints:   copyEndpoints(source.Endpoints),
		Ports:       source.Ports,
	}, true
}

func copyEndpoints(in []discoveryv1.Endpoint) []discoveryv1.Endpoint {
	out := make([]discoveryv1.Endpoint, len(in))
	for i := range in {
		out[i] = discoveryv1.Endpoint{
			Addresses:  in[i].Addresses,
			Conditions: in[i].Conditions,
			Hostname:   in[i].Hostname,
			Zone:       in[i].Zone,
		}
	}
	return out
}

// SliceKey reads which export a published slice belongs to and which slice it
// was made from. False if a label is missing or is no name: such a slice belongs
// to nothing.
func SliceKey(slice *discoveryv1.EndpointSlice) (key types.NamespacedName, source string, ok bool) {
	key = types.NamespacedName{
		Namespace: slice.Labels[model.LabelExportNamespace],
		Name:      slice.Labels[model.LabelExportName],
	}
	source = slice.Annotations[model.AnnotationSourceSlice]
	if len(validation.IsDNS1123Label(key.Namespace)) > 0 || len(validation.IsDNS1123Label(key.Name)) > 0 ||
		len(validation.IsDNS1123Subdomain(source)) > 0 {
		return types.NamespacedName{}, "", false
	}
	return key, source, true
}
