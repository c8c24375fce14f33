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

// MoveScope moves the label export-to of a ServiceExport to the annotation
// comity.dev/export-to; without such a label it changes nothing. Kubernetes refuses a
// comma in a label value, but only after mutating admission, so what users write as a
// label can still hold.
//
// was is the metadata that an update replaces, empty for a creation. The
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
		if !same(now.Annotations, was.Annotations, model.AnnotationExportTo) {
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

// Unchanged reports whether an update changes no field that policies decide on. An
// export that a later policy forbids can then still lose its finalizers or get an owner;
// what is stored is reviewed by the audit.
func Unchanged(now, was *mcsv1beta1.ServiceExport) bool {
	return equality.Semantic.DeepEqual(now.Spec, was.Spec) &&
		equality.Semantic.DeepEqual(now.Labels, was.Labels) &&
		equality.Semantic.DeepEqual(now.Annotations, was.Annotations)
}

// Check refuses annotations by which the export would be published nowhere, or with no
// port, and tiers that cannot be read; and a scope, ports or tiers that are written where
// nothing reads them, with which the export would reach more clusters than meant. was is the
// metadata that an update replaces, empty for a creation: what this request did not change is
// no reason to refuse it. service reads the Service of the export, nil if there is none (yet);
// it is called only if the ports need it. unread is its error.
func Check(now, was *metav1.ObjectMeta, service func() (*corev1.Service, error)) (refused, unread error) {
	for _, key := range []string{model.AnnotationExportTo, model.AnnotationExportToSelector, model.AnnotationExportPorts, model.AnnotationTiers} {
		if changes(now.Labels, was.Labels, key) {
			return fmt.Errorf("ServiceExport %s/%s, label %s: expected an annotation. Remedy: remove the label, and set the annotation %s",
				now.Namespace, now.Name, key, key), nil
		}
	}
	if changes(now.Annotations, was.Annotations, model.LabelExportTo) {
		return fmt.Errorf("ServiceExport %s/%s, annotation %s: expected %s. Remedy: rename the annotation",
			now.Namespace, now.Name, model.LabelExportTo, model.AnnotationExportTo), nil
	}
	for _, of := range []struct {
		annotation, what string
		read             func(text string) error
	}{{model.AnnotationExportToSelector, "selector", readSelector}, {model.AnnotationTiers, "tiers", readTiers}} {
		if !changes(now.Annotations, was.Annotations, of.annotation) {
			continue
		}
		if err := of.read(now.Annotations[of.annotation]); err != nil {
			return fmt.Errorf("ServiceExport %s/%s, annotation %s: %w. Remedy: correct the %s, or remove the annotation",
				now.Namespace, now.Name, of.annotation, err, of.what), nil
		}
	}
	if !changes(now.Annotations, was.Annotations, model.AnnotationExportPorts) {
		return nil, nil
	}
	problem := ""
	if selection, err := model.PortsOfExport(now); err != nil {
		problem = err.Error()
	} else if of, err := service(); err != nil {
		return nil, fmt.Errorf("the ports of its Service could not be read: %w", err)
	} else if of != nil {
		problem = selection.Missing(types.NamespacedName{Namespace: now.Namespace, Name: now.Name}, of)
	}
	if problem != "" {
		return fmt.Errorf("%s. Remedy: correct the list, or remove the annotation to export every port", problem), nil
	}
	return nil, nil
}

func readSelector(text string) error {
	_, err := model.ScopeOfSelector(text, nil)
	return err
}

func readTiers(text string) error {
	_, err := model.ParseTiers(text)
	return err
}

// changes reports whether a request that replaces was by now writes key.
func changes(now, was map[string]string, key string) bool {
	_, set := now[key]
	return set && !same(now, was, key)
}

// same reports whether key is in both maps with one value, or in neither.
func same(a, b map[string]string, key string) bool {
	x, inA := a[key]
	y, inB := b[key]
	return inA == inB && x == y
}
