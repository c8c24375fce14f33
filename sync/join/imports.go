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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/pager"
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

// CountImports counts the imports of the cluster of c that have an export of a cluster.
func CountImports(ctx context.Context, c client.Client, id model.ClusterID) (count int, err error) {
	imports, err := Imports(ctx, c)
	for _, i := range imports {
		if _, listed := i.List.Find(id); listed {
			count++
		}
	}
	return count, err
}

// eachOf calls do for the metadata of every object of a kind. A kind that the cluster does
// not serve has none.
func eachOf(ctx context.Context, c client.Client, kind schema.GroupVersionKind, do func(*metav1.PartialObjectMetadata) error, which ...client.ListOption) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err := Each(ctx, c, list, func(object *metav1.PartialObjectMetadata) error {
		object.SetGroupVersionKind(kind)
		return do(object)
	}, which...)
	if apimeta.IsNoMatchError(err) {
		return nil
	}
	return err
}

// Each calls do for every object of the kind of an empty list, which it reads in pages.
func Each[T client.Object](ctx context.Context, c client.Reader, empty client.ObjectList, do func(T) error, which ...client.ListOption) error {
	pages := pager.New(func(ctx context.Context, page metav1.ListOptions) (runtime.Object, error) {
		list := empty.DeepCopyObject().(client.ObjectList)
		if err := c.List(ctx, list, append(slices.Clone(which), client.Limit(page.Limit), client.Continue(page.Continue))...); err != nil {
			return nil, fmt.Errorf("list %T: %w", empty, err)
		}
		return list, nil
	})
	return pages.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error { return do(item.(T)) })
}
