// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/sync/model"
)

// MoveScope moves the label export-to of a ServiceExport to the annotation
// comity.dev/export-to; without such a label it changes nothing. Kubernetes refuses a
// comma in a label value, but only after mutating admission, so what users write as a
// label can still hold.
//
// was is the metadata that an update replaces, nil for a creation. The
// annotation on a stored object is usually what an earlier label became:
//
//	annotation              label        result
//	none                    any          becomes the annotation
//	same value              same value   is removed
//	other, written now      any          an error: it is not clear which scope is meant
//	other, as stored        written now  replaces the annotation ("kubectl apply"
//	                                     of a manifest whose label was edited)
//	other, as stored        as stored    both stay: this request changed neither
func MoveScope(now, was *metav1.ObjectMeta) error {
	label, labeled := now.Labels[model.LabelExportTo]
	annotation, annotated := now.Annotations[model.AnnotationExportTo]
	if !labeled {
		return nil
	}
	if annotated && annotation != label {
		if was == nil || !same(now.Annotations, was.Annotations, model.AnnotationExportTo) {
			return fmt.Errorf("ServiceExport %s/%s: label %s is %q, but annotation %s is %q; expected one scope. Remedy: keep the annotation and remove the label",
				now.Namespace, now.Name, model.LabelExportTo, label, model.AnnotationExportTo, annotation)
		}
		if same(now.Labels, was.Labels, model.LabelExportTo) {
			return nil
		}
	}
	metav1.SetMetaDataAnnotation(now, model.AnnotationExportTo, label)
	delete(now.Labels, model.LabelExportTo)
	return nil
}
