// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"fmt"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/sync/model"
)

// MoveScope gives the JSON patch that moves the label export-to of a
// ServiceExport to the annotation comity.dev/export-to, empty when there is no
// such label. Kubernetes refuses a comma in a label value, but only after
// mutating admission, so what users write as a label can still hold.
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
func MoveScope(now, was *metav1.ObjectMeta) ([]jsonpatch.Operation, error) {
	label, labeled := now.Labels[model.LabelExportTo]
	if !labeled {
		return nil, nil
	}
	annotation, annotated := now.Annotations[model.AnnotationExportTo]
	drop := jsonpatch.NewOperation("remove", "/metadata/labels/"+pointer(model.LabelExportTo), nil)
	set := jsonpatch.NewOperation("add", "/metadata/annotations/"+pointer(model.AnnotationExportTo), label)
	switch {
	case now.Annotations == nil:
		parent := jsonpatch.NewOperation("add", "/metadata/annotations", map[string]any{})
		return []jsonpatch.Operation{drop, parent, set}, nil
	case !annotated:
		return []jsonpatch.Operation{drop, set}, nil
	case annotation == label:
		return []jsonpatch.Operation{drop}, nil
	case was == nil || !same(now.Annotations, was.Annotations, model.AnnotationExportTo):
		return nil, fmt.Errorf("ServiceExport %s/%s: label %s is %q, but annotation %s is %q; expected one scope. Remedy: keep the annotation and remove the label",
			now.Namespace, now.Name, model.LabelExportTo, label, model.AnnotationExportTo, annotation)
	case same(now.Labels, was.Labels, model.LabelExportTo):
		return nil, nil
	default:
		return []jsonpatch.Operation{drop, set}, nil
	}
}

// same reports whether key is in both maps with one value, or in neither.
func same(a, b map[string]string, key string) bool {
	x, inA := a[key]
	y, inB := b[key]
	return inA == inB && x == y
}

// pointer escapes a key for use in a JSON pointer (RFC 6901, section 3).
func pointer(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}
