// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"slices"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/model"
)

// Imports are all imports that Comity made in the cluster of c, with the exports of which
// each consists. The list of an import is on its derived Service; the copy on the
// ServiceImport counts where there is none.
func Imports(ctx context.Context, c client.Client) (map[types.NamespacedName]model.List, error) {
	found := map[types.NamespacedName]model.List{}
	err := EachOf(ctx, c, []schema.GroupVersionKind{serviceImport, service}, func(object *metav1.PartialObjectMetadata) error {
		key := client.ObjectKeyFromObject(object)
		if object.Kind == service.Kind {
			key.Name = object.Labels[model.LabelServiceName]
		}
		text, listed := object.Annotations[model.AnnotationList]
		if !listed || key.Name == "" || !model.IsManaged(object) {
			return nil
		}
		if list, err := model.ParseList(text); err == nil { // the agent reports a list that cannot be read
			found[key] = list
		}
		return nil
	})
	return found, err
}

// CountImports counts the imports of the cluster of c that have an export of one of clusters,
// and those of them that have no other.
func CountImports(ctx context.Context, c client.Client, clusters ...model.ClusterID) (some, only int, err error) {
	imports, err := Imports(ctx, c)
	for _, list := range imports {
		before := len(list.Entries)
		left := len(slices.DeleteFunc(list.Entries, func(e model.Entry) bool { return slices.Contains(clusters, e.Cluster) }))
		if left < before {
			some++
		}
		if left < before && left == 0 {
			only++
		}
	}
	return some, only, err
}

// EachOf calls do for the metadata of every object of some kinds, one kind after the other. A
// kind that the cluster does not serve has none.
func EachOf(ctx context.Context, c client.Client, kinds []schema.GroupVersionKind, do func(*metav1.PartialObjectMetadata) error, which ...client.ListOption) error {
	for _, kind := range kinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := c.List(ctx, list, which...); err != nil && !apimeta.IsNoMatchError(err) {
			return fmt.Errorf("list %ss: %w", kind.Kind, err)
		}
		for i := range list.Items {
			list.Items[i].SetGroupVersionKind(kind)
			if err := do(&list.Items[i]); err != nil {
				return err
			}
		}
	}
	return nil
}
