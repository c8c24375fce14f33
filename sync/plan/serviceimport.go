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

// serviceImport plans the ServiceImport, once the derived Service's addresses
// are known.
func (p *importer) serviceImport() []Action {
	desired := p.desiredImport()
	existing := p.ownImport()
	switch {
	case existing == nil:
		return []Action{create(desired)}
	case p.kept:
		return nil
	}
	return correct(desired, existing, importIsAsDesired(existing, desired), importDrift(existing, desired))
}

func (p *importer) desiredImport() *mcsv1beta1.ServiceImport {
	d := p.Desired
	s := &mcsv1beta1.ServiceImport{
		TypeMeta:   importKind,
		ObjectMeta: p.meta(p.Key.Name),
		Spec: mcsv1beta1.ServiceImportSpec{
			Type: mcsv1beta1.ClusterSetIP,
			// The field is required: no ports is an empty list, not none at all.
			Ports:                 append([]mcsv1beta1.ServicePort{}, p.ports...),
			SessionAffinity:       d.SessionAffinity,
			SessionAffinityConfig: d.SessionAffinityConfig,
			InternalTrafficPolicy: d.InternalTrafficPolicy,
			TrafficDistribution:   d.TrafficDistribution,
		},
	}
	// Ours last: what a user exports must not pass for what Comity says.
	s.Labels = maps.Clone(d.Labels)
	if s.Labels == nil {
		s.Labels = map[string]string{}
	}
	s.Labels[model.LabelServiceName] = p.Key.Name
	s.Labels[labelManagedBy] = model.ManagedBy
	maps.Copy(s.Annotations, d.Annotations)
	p.announce(s)
	return sign(s, importFields(s))
}

// announce copies from the derived Service what clients are to find. The
// Service is what answers: it differs from the desired type only where it is
// kept because a cluster was not read. Where there is none, because this
// cluster has none of the import's IP families or others hold its names, the
// import says that it is there and has no address: DNS then answers with no
// data, which is the truth, and not that the name does not exist, which would be
// cached as such.
func (p *importer) announce(s *mcsv1beta1.ServiceImport) {
	if p.existing == nil {
		s.Spec.Type = p.Desired.Type
		return
	}
	s.Annotations[model.AnnotationDerivedName] = p.name
	s.Spec.IPFamilies = slices.Clone(p.existing.Spec.IPFamilies)
	if p.existing.Spec.ClusterIP == corev1.ClusterIPNone {
		s.Spec.Type = mcsv1beta1.Headless
		return
	}
	s.Spec.IPs = slices.Clone(p.existing.Spec.ClusterIPs)
}
