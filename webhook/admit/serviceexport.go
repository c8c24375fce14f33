// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// Unchanged reports whether an update changes no field that policies decide on. An
// export that a later policy forbids can then still lose its finalizers or get an owner;
// what is stored is reviewed by the audit.
func Unchanged(now, was *mcsv1beta1.ServiceExport) bool {
	return equality.Semantic.DeepEqual(now.Spec, was.Spec) &&
		equality.Semantic.DeepEqual(now.Labels, was.Labels) &&
		equality.Semantic.DeepEqual(now.Annotations, was.Annotations)
}

// CheckSelector refuses an annotation comity.dev/export-to-selector that cannot be
// read: the export would be published nowhere. was is the metadata that an update
// replaces, nil for a creation: a selector that this request did not change is no
// reason to refuse it.
func CheckSelector(now, was *metav1.ObjectMeta) error {
	text, set := now.Annotations[model.AnnotationExportToSelector]
	if !set || was != nil && same(now.Annotations, was.Annotations, model.AnnotationExportToSelector) {
		return nil
	}
	if _, err := model.ScopeOfSelector(text, nil); err != nil {
		return fmt.Errorf("ServiceExport %s/%s, annotation %s: %w. Remedy: correct the selector, or remove the annotation",
			now.Namespace, now.Name, model.AnnotationExportToSelector, err)
	}
	return nil
}

// CheckPorts refuses an annotation comity.dev/export-ports that cannot be read, or that
// names a port that service does not have; service is nil if there is none (yet). was is
// as in CheckSelector.
func CheckPorts(now, was *metav1.ObjectMeta, service *corev1.Service) error {
	if !ChangesPorts(now, was) {
		return nil
	}
	selection, err := model.PortsOfExport(now)
	if err != nil {
		return fmt.Errorf("%w. Remedy: correct the list, or remove the annotation to export every port", err)
	}
	if service == nil {
		return nil
	}
	if missing := selection.Missing(types.NamespacedName{Namespace: now.Namespace, Name: now.Name}, service); missing != "" {
		return fmt.Errorf("%s. Remedy: correct the list, or remove the annotation to export every port", missing)
	}
	return nil
}

// ChangesPorts reports whether a request writes the annotation comity.dev/export-ports.
func ChangesPorts(now, was *metav1.ObjectMeta) bool {
	_, set := now.Annotations[model.AnnotationExportPorts]
	return set && (was == nil || !same(now.Annotations, was.Annotations, model.AnnotationExportPorts))
}
