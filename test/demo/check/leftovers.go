// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/demo/world"
)

// Nothing checks that no trace of any export is left in a cluster: no import,
// derived Service or slice, and for its peers no slice, and no record but one that
// states the withdrawal.
func Nothing(ctx context.Context, m *world.Member) error {
	for _, kind := range []struct {
		what string
		list client.ObjectList
		with client.ListOption
	}{
		{"ServiceExports", &mcsv1beta1.ServiceExportList{}, client.MatchingLabels{}},
		{"ServiceImports", &mcsv1beta1.ServiceImportList{}, client.MatchingLabels{}},
		{"derived Services", &corev1.ServiceList{}, client.HasLabels{model.LabelServiceName}},
		{"derived EndpointSlices", &discoveryv1.EndpointSliceList{}, client.HasLabels{model.LabelServiceName}},
		{"ExportRecords", &exchangev1alpha1.ExportRecordList{}, client.MatchingLabels{}},
		{"EndpointSlices for peers", &discoveryv1.EndpointSliceList{}, client.HasLabels{model.LabelExportName}},
	} {
		if err := m.Client.List(ctx, kind.list, kind.with); err != nil {
			return fmt.Errorf("list %s in %s: %w", kind.what, m.ID(), err)
		}
		if records, is := kind.list.(*exchangev1alpha1.ExportRecordList); is {
			records.Items = slices.DeleteFunc(records.Items, func(r exchangev1alpha1.ExportRecord) bool { return r.Spec.Withdrawn })
		}
		if names := namesOf(kind.list); len(names) > 0 {
			return fmt.Errorf("%s in %s: expected none, got %s", kind.what, m.ID(), strings.Join(names, ", "))
		}
	}
	return nil
}

// namesOf are the objects of a list as namespace/name.
func namesOf(list client.ObjectList) []string {
	items, err := meta.ExtractList(list)
	if err != nil {
		return []string{err.Error()}
	}
	var names []string
	for _, item := range items {
		if object, ok := item.(client.Object); ok {
			names = append(names, client.ObjectKeyFromObject(object).String())
		}
	}
	return names
}
