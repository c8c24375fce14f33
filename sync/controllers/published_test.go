// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
)

// recordReader is a cache of the exchange with at most one record.
type recordReader struct {
	client.Reader
	record *exchangev1alpha1.ExportRecord
}

func (r recordReader) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var given client.ListOptions
	given.ApplyOptions(opts)
	if r.record != nil && given.FieldSelector.Matches(fields.Set{indexExport: r.record.Name}) {
		list.(*exchangev1alpha1.ExportRecordList).Items = []exchangev1alpha1.ExportRecord{*r.record}
	}
	return nil
}

func TestPublishedIsWhatStandsInTheExchange(t *testing.T) {
	record := func(change func(*exchangev1alpha1.ExportRecord)) *exchangev1alpha1.ExportRecord {
		out := &exchangev1alpha1.ExportRecord{ObjectMeta: managed("web.shop"), Spec: exchangev1alpha1.ExportRecordSpec{ExportUID: "1"}}
		out.Namespace = "comity-a-to-b"
		if change != nil {
			change(out)
		}
		return out
	}
	for _, tc := range []struct {
		name   string
		record *exchangev1alpha1.ExportRecord
		want   bool
	}{
		{"no record", nil, false},
		{"a record in any exchange namespace", record(nil), true},
		{"a record that states the withdrawal", record(func(r *exchangev1alpha1.ExportRecord) { r.Spec.Withdrawn = true }), false},
		{"a record of an earlier export of that name", record(func(r *exchangev1alpha1.ExportRecord) { r.Spec.ExportUID = "0" }), false},
		{"FAULT 43: a record that was restored without managedFields", record(func(r *exchangev1alpha1.ExportRecord) { r.ManagedFields = nil }), true},
		{"a record of another export", record(func(r *exchangev1alpha1.ExportRecord) { r.Name = "api.shop" }), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			records := recordReader{record: tc.record}
			export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"}}
			got, err := Published{Records: records}.Of(t.Context(), export)
			if err != nil || got.Published != tc.want {
				t.Errorf("got %v and error %v, want %v", got, err, tc.want)
			}
			unread := errors.New("not read yet")
			if _, err := (Published{Records: records, Read: func() error { return unread }}).Of(t.Context(), export); !errors.Is(err, unread) {
				t.Errorf("error %v while the exchange was not read", err)
			}
		})
	}
}
