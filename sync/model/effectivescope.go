// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// EffectiveScope is where a ServiceExport is published: the part of its list
// (ScopeOfExport) that its selector (ScopeOfSelector) and its Namespace allow.
// Publisher and policies both use it, so that a policy decides on the scope that is
// published. namespace is nil if there is none, which sets no limit.
//
// A scope that cannot be read is never taken for a wider one: an error, which names
// object and annotation, comes with a scope that holds no cluster. It is an error,
// too, if annotations allow no cluster in common.
func EffectiveScope(key types.NamespacedName, export metav1.Object, namespace *corev1.Namespace, members []Member) (Scope, error) {
	scope, err := ListedScope(key, export, namespace)
	if err != nil {
		return Scope{}, err
	}
	text, set := export.GetAnnotations()[AnnotationExportToSelector]
	if !set {
		return scope, nil
	}
	selected, err := ScopeOfSelector(text, members)
	if err != nil {
		return Scope{}, fmt.Errorf(scopeUnreadable, "ServiceExport "+key.String(), AnnotationExportToSelector, err)
	}
	both := scope.Intersect(selected)
	if both.Empty() {
		return both, fmt.Errorf("ServiceExport %s, annotation %s: %q selects %s of the members, annotation %s of it or of its Namespace allows %s, and no cluster is in both; "+
			"change the selector, or the labels of a Peer", key, AnnotationExportToSelector, text, orNone(selected), AnnotationExportTo, scope)
	}
	return both, nil
}

const scopeUnreadable = "%s, annotation %s: %w; it is exported nowhere until that is corrected"

// ListedScope is the part of EffectiveScope that depends on no member: the lists of the
// ServiceExport and of its Namespace, and every cluster without one.
func ListedScope(key types.NamespacedName, export metav1.Object, namespace *corev1.Namespace) (Scope, error) {
	exportName, namespaceName := "ServiceExport "+key.String(), "Namespace "+key.Namespace
	scope, err := ScopeOfExport(export)
	if err != nil {
		return Scope{}, fmt.Errorf(scopeUnreadable, exportName, AnnotationExportTo, err)
	}
	if namespace == nil {
		return scope, nil
	}
	limit, err := ScopeOfNamespace(namespace)
	if err != nil {
		return Scope{}, fmt.Errorf(scopeUnreadable, namespaceName, AnnotationExportTo, err)
	}
	both := scope.Intersect(limit)
	if both.Empty() {
		return both, fmt.Errorf("%s: names %s, annotation %s of its Namespace allows %s, and no cluster is in both; change one of the two",
			exportName, scope, AnnotationExportTo, limit)
	}
	return both, nil
}

func orNone(scope Scope) string {
	if scope.Empty() {
		return "none"
	}
	return scope.String()
}
