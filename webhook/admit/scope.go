// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"fmt"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

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
	move, err := scopeMoveOf(now, was)
	if err != nil {
		return nil, err
	}
	var patch []jsonpatch.Operation
	if move.drop {
		patch = append(patch, jsonpatch.NewOperation("remove", "/metadata/labels/"+pointer(model.LabelExportTo), nil))
	}
	if move.set && now.Annotations == nil {
		patch = append(patch, jsonpatch.NewOperation("add", "/metadata/annotations", map[string]any{}))
	}
	if move.set {
		patch = append(patch, jsonpatch.NewOperation("add", "/metadata/annotations/"+pointer(model.AnnotationExportTo), now.Labels[model.LabelExportTo]))
	}
	return patch, nil
}

// SetScope changes metadata as the patch of MoveScope does, for who evaluates a request
// without an API server.
func SetScope(now, was *metav1.ObjectMeta) error {
	move, err := scopeMoveOf(now, was)
	if err != nil {
		return err
	}
	if move.set {
		metav1.SetMetaDataAnnotation(now, model.AnnotationExportTo, now.Labels[model.LabelExportTo])
	}
	if move.drop {
		delete(now.Labels, model.LabelExportTo)
	}
	return nil
}

// scopeMove says whether the label is dropped, and whether the annotation is set to it.
type scopeMove struct{ drop, set bool }

// scopeMoveOf is the table of MoveScope.
func scopeMoveOf(now, was *metav1.ObjectMeta) (scopeMove, error) {
	label, labeled := now.Labels[model.LabelExportTo]
	annotation, annotated := now.Annotations[model.AnnotationExportTo]
	switch {
	case !labeled:
		return scopeMove{}, nil
	case !annotated:
		return scopeMove{drop: true, set: true}, nil
	case annotation == label:
		return scopeMove{drop: true}, nil
	case was == nil || !same(now.Annotations, was.Annotations, model.AnnotationExportTo):
		return scopeMove{}, fmt.Errorf("ServiceExport %s/%s: label %s is %q, but annotation %s is %q; expected one scope. Remedy: keep the annotation and remove the label",
			now.Namespace, now.Name, model.LabelExportTo, label, model.AnnotationExportTo, annotation)
	case same(now.Labels, was.Labels, model.LabelExportTo):
		return scopeMove{}, nil
	default:
		return scopeMove{drop: true, set: true}, nil
	}
}

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
