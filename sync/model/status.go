// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// StatusOf is what is applied to give the very version of object that was read a status, which
// is a pointer: a stale cache must not make the same transition, and its event, twice.
func StatusOf(object metav1.Object, kind schema.GroupVersionKind, status any) *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		panic(err) // it is no pointer to a struct: a programming error
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": content}}
	u.SetGroupVersionKind(kind)
	u.SetNamespace(object.GetNamespace())
	u.SetName(object.GetName())
	u.SetUID(object.GetUID())
	u.SetResourceVersion(object.GetResourceVersion())
	return u
}
