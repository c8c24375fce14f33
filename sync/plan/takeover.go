// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
)

// Objects of the Sveltos pipeline: the three event triggers that Sveltos
// documents for KEP-1645, which create a derived Service, a ServiceImport and
// EndpointSlices. An object is the pipeline's if it has the name and all the
// labels that the templates set; if one differs, the object is foreign.

const (
	sveltos       = "sveltos" // the value of the managed-by labels
	sveltosDomain = "projectsveltos.io"
)

// AdoptableFrom is the source cluster of a slice of key that the Sveltos pipeline created;
// empty for any other slice. The pipeline's slices carry the cluster only in their name.
func AdoptableFrom(s *discoveryv1.EndpointSlice, key types.NamespacedName) model.ClusterID {
	derived := model.DerivedName(key.Name)
	text, named := strings.CutPrefix(s.Name, derived+"-")
	id, err := model.ParseClusterID(text)
	source, isLabeled := s.Labels[model.LabelSourceCluster]
	if model.IsManaged(s) || !named || err != nil || s.Labels[model.LabelServiceName] != key.Name || isLabeled && source != text ||
		s.Labels[discoveryv1.LabelServiceName] != derived || s.Labels[discoveryv1.LabelManagedBy] != sveltos {
		return ""
	}
	return id
}

// releaseFromSveltos returns a JSON merge patch that removes the pipeline's
// labels, annotations and owner references, by which Sveltos finds what to
// delete when the pipeline is removed. It also removes the annotation
// model.AnnotationAdopting.
func releaseFromSveltos(obj metav1.Object) map[string]any {
	annotations := withoutSveltosKeys(obj.GetAnnotations())
	annotations[model.AnnotationAdopting] = nil
	metadata := map[string]any{"annotations": annotations}
	if labels := withoutSveltosKeys(obj.GetLabels()); len(labels) > 0 {
		metadata["labels"] = labels
	}
	owners := model.Without(obj.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
		group, _, _ := strings.Cut(o.APIVersion, "/")
		return inSveltosDomain(group)
	})
	if len(owners) < len(obj.GetOwnerReferences()) {
		metadata["ownerReferences"] = owners
	}
	return map[string]any{"metadata": metadata}
}

// withoutSveltosKeys returns a merge patch that removes the pipeline's keys
// that present has.
func withoutSveltosKeys(present map[string]string) map[string]any {
	patch := map[string]any{}
	for key := range present {
		prefix, _, _ := strings.Cut(key, "/")
		// The pipeline's templates use the last two as helpers.
		if inSveltosDomain(prefix) || key == "service-export-name" || key == "service-export-namespace" {
			patch[key] = nil
		}
	}
	return patch
}

func inSveltosDomain(text string) bool {
	return text == sveltosDomain || strings.HasSuffix(text, "."+sveltosDomain)
}
