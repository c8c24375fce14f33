// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package compactslice

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Shrink is a cache transform for all kinds that the agent caches. It is Transform of
// EndpointSlices. Of every object it drops the field sets, most of its size, and keeps who
// applied it, by which ownership is proven. Informers pass a streamed object through it
// twice, and packed ones share their entries, so what is trimmed is not written to.
func Shrink(obj any) (any, error) {
	if object, ok := obj.(metav1.Object); ok { // no tombstone, which is about to be forgotten anyway
		entries := object.GetManagedFields()
		for i := range entries {
			if entries[i].FieldsV1 != nil {
				entries[i].FieldsV1 = nil
			}
		}
		object.SetManagedFields(entries)
	}
	return Transform(obj)
}
