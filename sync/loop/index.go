// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Indexes of the manager's cache. With them the work for one key is
// proportional to that Service's objects and to nothing else.
const (
	// indexService finds slices by the Service that they belong to.
	indexService = "comity.service"
	// indexImport finds derived slices and Services by the import's name.
	indexImport = "comity.import"
	// indexExport finds records and slice copies by the export's namespace/name,
	// in whatever exchange namespace.
	indexExport = "comity.export"
	// indexDerived finds ServiceImports by the name that their derived Service
	// would like to have.
	indexDerived = "comity.derived"
)

func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	byLabel := func(label string) client.IndexerFunc {
		return func(o client.Object) []string {
			if value := o.GetLabels()[label]; value != "" {
				return []string{value}
			}
			return nil
		}
	}
	return errors.Join(
		indexer.IndexField(ctx, &discoveryv1.EndpointSlice{}, indexService, byLabel(discoveryv1.LabelServiceName)),
		indexer.IndexField(ctx, &discoveryv1.EndpointSlice{}, indexImport, byLabel(model.LabelServiceName)),
		indexer.IndexField(ctx, &corev1.Service{}, indexImport, byLabel(model.LabelServiceName)),
		indexer.IndexField(ctx, &discoveryv1.EndpointSlice{}, indexExport, exportIndex),
		indexer.IndexField(ctx, &exchangev1alpha1.ExportRecord{}, indexExport, func(o client.Object) []string {
			return []string{o.GetName()}
		}),
		indexer.IndexField(ctx, &mcsv1beta1.ServiceImport{}, indexDerived, func(o client.Object) []string {
			return []string{model.DerivedName(o.GetName())}
		}),
	)
}

func exportIndex(o client.Object) []string {
	if key, ok := exportOfSlice(o); ok {
		return []string{key.String()}
	}
	return nil
}

// exportOfSlice reads which export a slice copy in the exchange is of.
func exportOfSlice(o client.Object) (types.NamespacedName, bool) {
	key := types.NamespacedName{Namespace: o.GetLabels()[model.LabelExportNamespace], Name: o.GetLabels()[model.LabelExportName]}
	return key, key.Namespace != "" && key.Name != ""
}

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

// listSlices reads slices without copying them: there may be thousands of
// endpoints, and neither plan nor apply changes what it is given.
func listSlices(ctx context.Context, c client.Reader, opts ...client.ListOption) ([]*discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	if err := c.List(ctx, &list, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, err
	}
	return pointers(list.Items), nil
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}
