// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

var importKind = metav1.TypeMeta{APIVersion: mcsv1beta1.GroupVersion.String(), Kind: mcsv1beta1.ServiceImportKindName}

// serviceImport plans the ServiceImport. The addresses of the derived Service
// have to be known.
func (p *importer) serviceImport() []Action {
	desired := p.desiredImport()
	existing := p.own
	switch {
	case existing == nil:
		return []Action{create(desired)}
	case p.Frozen && slices.Equal(existing.Spec.IPs, p.importIPs()):
		return p.annotateList(&mcsv1beta1.ServiceImport{TypeMeta: importKind}, existing)
	}
	hasAll, strip := compareSpec(&existing.Spec, &desired.Spec)
	return updateOrAdopt(desired, existing, hasAll, driftPatch(existing, desired, strip))
}

func (p *importer) desiredImport() *mcsv1beta1.ServiceImport {
	s := &mcsv1beta1.ServiceImport{TypeMeta: importKind, ObjectMeta: p.meta(p.Key.Name), Spec: p.importSpec()}
	// Comity's labels and annotations overwrite those that a user exports.
	s.Labels = maps.Clone(p.Desired.Labels)
	if s.Labels == nil {
		s.Labels = map[string]string{}
	}
	s.Labels[model.LabelServiceName] = p.Key.Name
	s.Labels[labelManagedBy] = model.ManagedBy
	maps.Copy(s.Annotations, p.Desired.Annotations)
	delete(s.Annotations, model.AnnotationConfirmTakeover) // only users of this cluster confirm
	s.Annotations[model.AnnotationList] = p.List.String()
	if p.existing != nil {
		s.Annotations[model.AnnotationDerivedName] = p.name
	}
	return sign(s, appliedNames(&s.Spec))
}

// importType is the type of the derived Service, which clients use. It differs
// from the desired type only where the Service is kept because the export that decides
// was not read. Without a Service, because this cluster supports none of the import's IP
// families or no name is free, the ServiceImport has the desired type and no
// address. DNS then answers that the name has no addresses. Without the
// ServiceImport it would answer that the name does not exist, and resolvers
// would cache that.
func (p *importer) importType() mcsv1beta1.ServiceImportType {
	switch {
	case p.existing == nil:
		return p.Desired.Type
	case p.existing.Spec.ClusterIP == corev1.ClusterIPNone:
		return mcsv1beta1.Headless
	}
	return mcsv1beta1.ClusterSetIP
}

// importIPs are the cluster IPs of the derived Service; none if it is headless.
func (p *importer) importIPs() []string {
	if p.existing == nil || p.existing.Spec.ClusterIP == corev1.ClusterIPNone {
		return nil
	}
	return slices.Clone(p.existing.Spec.ClusterIPs)
}

func (p *importer) importFamilies() []corev1.IPFamily {
	if p.existing == nil {
		return nil
	}
	return slices.Clone(p.existing.Spec.IPFamilies)
}
