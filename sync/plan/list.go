// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// The list of an import stands on the derived Service, which is written first and outlives
// the definition of ServiceImports. The ServiceImport has a copy.

// StoredList is the list of the import called key: that of its derived Service; of the
// ServiceImport only where there is no derived Service with a list. The zero value if there
// is none, or none that can be read.
func StoredList(current Current, key types.NamespacedName) model.List {
	var holders []metav1.Object
	for _, s := range derivedServices(current, key, current.Import) {
		if s.DeletionTimestamp == nil {
			holders = append(holders, s)
		}
	}
	if current.Import != nil {
		holders = append(holders, current.Import)
	}
	for _, o := range holders {
		if list, err := model.ParseList(o.GetAnnotations()[model.AnnotationList]); err == nil && model.IsManaged(o) {
			return list
		}
	}
	return model.List{}
}

// derivedServices are the derived Services of an import, whoever made them, preferred names
// first.
func derivedServices(current Current, key types.NamespacedName, own *mcsv1beta1.ServiceImport) []*corev1.Service {
	var out []*corev1.Service
	for _, name := range derivedNames(key, own) {
		for _, s := range current.Services {
			if s.Name == name && ofImport(s, key, own) {
				out = append(out, s)
			}
		}
	}
	return out
}

// ofImport reports whether a derived Service is that of an import, by its label, or, if a
// user removed that, by the annotation of the ServiceImport.
func ofImport(s *corev1.Service, key types.NamespacedName, own *mcsv1beta1.ServiceImport) bool {
	label := s.Labels[model.LabelServiceName]
	announced := own != nil && model.IsManaged(own) && own.Annotations[model.AnnotationDerivedName] == s.Name
	return label == key.Name || announced && !canDerive(label, s.Name)
}

// Standing is the import as it stands: the properties of what exists, with the exports
// that are used now. While the properties are frozen, it takes the place of what the
// exports are resolved to, which may be nil. It is resolved itself if nothing exists. Of the
// derived Service and the ServiceImport, the first is written first, and is what clients
// use; labels and annotations are those of the other one.
func Standing(current Current, key types.NamespacedName, resolved *model.Import) *model.Import {
	out := &model.Import{Key: key}
	if resolved != nil {
		out.Constituents, out.Tiers = resolved.Constituents, resolved.Tiers
	}
	own := current.Import
	hasOwn := own != nil && model.IsManaged(own)
	at := slices.IndexFunc(current.Services, func(s *corev1.Service) bool { return model.IsManaged(s) && ofImport(s, key, own) })
	if hasOwn {
		out.ServiceImportSpec, out.Labels, out.Annotations = own.Spec, model.Unreserved(own.Labels), model.Unreserved(own.Annotations)
	}
	if at >= 0 {
		standingService(out, current.Services[at])
	} else if !hasOwn {
		return resolved
	}
	return out
}

// standingService takes the properties of a derived Service.
func standingService(out *model.Import, s *corev1.Service) {
	out.Type, out.Ports, out.Tiers = mcsv1beta1.ClusterSetIP, nil, s.Annotations[model.AnnotationTiers]
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		out.Type = mcsv1beta1.Headless
	}
	for _, p := range s.Spec.Ports {
		port := mcsv1beta1.ServicePort{Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port}
		if p.Name != unnamed(port) { // else a name that proxyName made
			port.Name = p.Name
		}
		out.Ports = append(out.Ports, port)
	}
	out.IPFamilies, out.SessionAffinity, out.SessionAffinityConfig = s.Spec.IPFamilies, s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig
	out.InternalTrafficPolicy, out.TrafficDistribution = s.Spec.InternalTrafficPolicy, s.Spec.TrafficDistribution
	if out.Type == mcsv1beta1.Headless { // whose import has none of these
		out.SessionAffinity, out.SessionAffinityConfig, out.InternalTrafficPolicy, out.TrafficDistribution = "", nil, nil, nil
	}
}

// annotateService is annotateList of the derived Service.
func (p *importer) annotateService() []Action {
	return p.annotateList(&corev1.Service{TypeMeta: serviceKind}, p.existing)
}

// annotateList writes the list where nothing else of an object changes.
func (p *importer) annotateList(object Object, current metav1.Object) []Action {
	want := p.List.String()
	if current.GetAnnotations()[model.AnnotationList] == want || current.GetDeletionTimestamp() != nil || !model.IsManaged(current) {
		return nil // what is to be adopted is not Comity's yet
	}
	object.SetNamespace(current.GetNamespace())
	object.SetName(current.GetName())
	return []Action{{
		Verb: Annotate, Object: object, UID: current.GetUID(), ResourceVersion: current.GetResourceVersion(),
		Strip: mergePatch{"metadata": map[string]any{"annotations": map[string]any{model.AnnotationList: want}}},
	}}
}
