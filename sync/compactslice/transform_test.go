// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package compactslice

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/sync/model"
)

func TestOnlyTheOwnersStayInManagedFields(t *testing.T) {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{
		Manager: model.FieldOwner, Operation: metav1.ManagedFieldsOperationApply, Subresource: "status", FieldsV1: &metav1.FieldsV1{},
	}}}}
	if _, err := Shrink(s); err != nil {
		t.Fatal(err)
	}
	got := s.ManagedFields[0]
	if got.FieldsV1 != nil || got.Manager != model.FieldOwner || got.Operation != metav1.ManagedFieldsOperationApply || got.Subresource != "status" {
		t.Errorf("got %+v", got)
	}
}
