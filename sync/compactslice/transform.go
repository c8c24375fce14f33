// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package compactslice

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TrimManagedFields is a cache transform that drops the field sets, most of an
// object's size, and keeps who applied it, by which ownership is proven. Informers
// pass a streamed object through it twice, and packed ones share their entries, so
// what is trimmed is not written to.
func TrimManagedFields(obj any) (any, error) {
	object, ok := obj.(metav1.Object)
	if !ok { // a tombstone, which is about to be forgotten anyway
		return obj, nil
	}
	entries := object.GetManagedFields()
	for i := range entries {
		if entries[i].FieldsV1 != nil {
			entries[i].FieldsV1 = nil
		}
	}
	object.SetManagedFields(entries)
	return obj, nil
}

// Shrink is a cache transform for all kinds that the agent caches: it is
// TrimManagedFields, and Transform of EndpointSlices.
func Shrink(obj any) (any, error) {
	trimmed, err := TrimManagedFields(obj)
	if err != nil {
		return nil, err
	}
	return Transform(trimmed)
}
