// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestIsManaged(t *testing.T) {
	apply, update := metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	cases := []struct {
		name    string
		entries []metav1.ManagedFieldsEntry
		want    bool
	}{
		{"nobody is known to have written it", nil, false},
		{"Comity applied it", []metav1.ManagedFieldsEntry{{Manager: "comity", Operation: apply}}, true},
		{"Comity applied it and a user edited it", []metav1.ManagedFieldsEntry{
			{Manager: "kubectl-edit", Operation: update}, {Manager: "comity", Operation: apply},
		}, true},
		{"Comity applied its status only", []metav1.ManagedFieldsEntry{{Manager: "comity", Operation: apply, Subresource: "status"}}, false},
		{"somebody of that name updated it", []metav1.ManagedFieldsEntry{{Manager: "comity", Operation: update}}, false},
		{"a join applied it", []metav1.ManagedFieldsEntry{{Manager: "comity-join", Operation: apply}}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			object := &metav1.ObjectMeta{ManagedFields: c.entries, Labels: map[string]string{"app.kubernetes.io/managed-by": ManagedBy}}
			if got := IsManaged(object); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}
