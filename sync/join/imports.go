// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/model"
)

// Import is an import that Comity made in a cluster, with the exports of which it consists.
type Import struct {
	Key  types.NamespacedName
	List model.List
}

// Imports are all imports of the cluster of c, in order. The list of an import is on its
// derived Service; the copy on the ServiceImport counts where there is none.
func Imports(ctx context.Context, c client.Client) ([]Import, error) {
	found := map[types.NamespacedName]model.List{}
	for _, kind := range []schema.GroupVersionKind{serviceImport, corev1.SchemeGroupVersion.WithKind("Service")} {
		err := eachOf(ctx, c, kind, func(object *metav1.PartialObjectMetadata) error {
			key := client.ObjectKeyFromObject(object)
			if kind.Kind == "Service" {
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
		if err != nil {
			return nil, err
		}
	}
	imports := make([]Import, 0, len(found))
	for key, list := range found {
		imports = append(imports, Import{key, list})
	}
	slices.SortFunc(imports, func(a, b Import) int { return model.CompareKeys(a.Key, b.Key) })
	return imports, nil
}

// From are those imports that have an export of a cluster.
func From(imports []Import, id model.ClusterID) []Import {
	return slices.DeleteFunc(slices.Clone(imports), func(i Import) bool {
		_, listed := i.List.Find(id)
		return !listed
	})
}

// eachOf calls f for the metadata of every object of a kind, page by page. A
// kind that the cluster does not serve has none.
func eachOf(ctx context.Context, c client.Client, kind schema.GroupVersionKind, f func(*metav1.PartialObjectMetadata) error, which ...client.ListOption) error {
	for next := ""; ; {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(schema.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind + "List"})
		err := c.List(ctx, page, append(slices.Clone(which), client.Limit(pageSize), client.Continue(next))...)
		if apimeta.IsNoMatchError(err) {
			return nil
		} else if err != nil {
			return fmt.Errorf("list every %s: %w", kind.Kind, err)
		}
		for i := range page.Items {
			object := &page.Items[i]
			object.SetGroupVersionKind(kind)
			if err := f(object); err != nil {
				return err
			}
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}
