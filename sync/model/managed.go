// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsManaged reports whether Comity made the object: whether FieldOwner applied the
// object itself and not merely a subresource such as its status. Labels prove
// nothing, for anybody may set them.
func IsManaged(object metav1.Object) bool {
	return slices.ContainsFunc(object.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == FieldOwner &&
			entry.Operation == metav1.ManagedFieldsOperationApply &&
			entry.Subresource == ""
	})
}
