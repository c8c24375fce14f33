// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TrimManagedFields is a cache transform that drops the field sets, most of an
// object's size, and keeps who applied it, by which ownership is proven.
func TrimManagedFields(obj any) (any, error) {
	object, ok := obj.(metav1.Object)
	if !ok { // a tombstone, which is about to be forgotten anyway
		return obj, nil
	}
	entries := object.GetManagedFields()
	for i := range entries {
		entries[i].FieldsV1 = nil
	}
	object.SetManagedFields(entries)
	return obj, nil
}
