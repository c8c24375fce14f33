// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package takeover recognizes what the Sveltos pipeline made for an import, and
// says what that pipeline left on an object that Comity now owns.
//
// The pipeline is the one that Sveltos documents for KEP-1645: three event
// triggers that render a derived Service, a ServiceImport and EndpointSlices.
// An object is recognized by its name and by all labels that the templates set;
// whatever differs in one of them is foreign like any other. Nothing is decided
// here about when to take over, and nothing is ever deleted for it.
package takeover

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

const (
	labelManagedBy = "app.kubernetes.io/managed-by"
	pipeline       = "sveltos"
	domain         = "projectsveltos.io"
)

// IsService reports whether s is the pipeline's derived Service of key.
func IsService(s *corev1.Service, key types.NamespacedName) bool {
	return s.Namespace == key.Namespace && s.Name == model.DerivedName(key.Name) &&
		s.Labels[model.LabelServiceName] == key.Name && s.Labels[model.LabelServiceImported] == "true" &&
		s.Labels[labelManagedBy] == pipeline
}

// SliceOf gives the source cluster of a slice that the pipeline made for key;
// empty if it did not. The pipeline tells the cluster in the name alone.
func SliceOf(s *discoveryv1.EndpointSlice, key types.NamespacedName) model.ClusterID {
	derived := model.DerivedName(key.Name)
	text, named := strings.CutPrefix(s.Name, derived+"-")
	id, err := model.ParseClusterID(text)
	if !named || err != nil || s.Namespace != key.Namespace || s.Labels[model.LabelServiceName] != key.Name ||
		s.Labels[discoveryv1.LabelServiceName] != derived || s.Labels[discoveryv1.LabelManagedBy] != pipeline {
		return ""
	}
	if source, has := s.Labels[model.LabelSourceCluster]; has && source != text {
		return ""
	}
	return id
}

// IsImport reports whether s may be the pipeline's ServiceImport of key. It
// carries no mark of the pipeline but the derived Service's name, so the caller
// has to know that Service, too.
func IsImport(s *mcsv1beta1.ServiceImport, key types.NamespacedName) bool {
	return s.Namespace == key.Namespace && s.Name == key.Name &&
		s.Annotations[model.AnnotationDerivedName] == model.DerivedName(key.Name)
}

// Release is a JSON merge patch that takes off what the pipeline left in the
// metadata of an object: by its labels and annotations Sveltos finds what to
// delete when the pipeline is removed. It takes off the mark of adopting, too.
func Release(obj metav1.Object) map[string]any {
	metadata := map[string]any{"annotations": gone(obj.GetAnnotations(), model.AnnotationAdopting)}
	if labels := gone(obj.GetLabels()); len(labels) > 0 {
		metadata["labels"] = labels
	}
	var owners []metav1.OwnerReference
	for _, owner := range obj.GetOwnerReferences() {
		if group, _, _ := strings.Cut(owner.APIVersion, "/"); !isPipelines(group) {
			owners = append(owners, owner)
		}
	}
	if len(owners) < len(obj.GetOwnerReferences()) {
		metadata["ownerReferences"] = owners
	}
	return map[string]any{"metadata": metadata}
}

// gone removes the pipeline's keys, and more.
func gone(of map[string]string, more ...string) map[string]any {
	patch := map[string]any{}
	for _, key := range more {
		patch[key] = nil
	}
	for key := range of {
		prefix, _, _ := strings.Cut(key, "/")
		// The last two are helpers of the pipeline's templates.
		if isPipelines(prefix) || key == "service-export-name" || key == "service-export-namespace" {
			patch[key] = nil
		}
	}
	return patch
}

func isPipelines(text string) bool { return text == domain || strings.HasSuffix(text, "."+domain) }
