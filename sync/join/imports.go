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

// eachOf calls f for the metadata of every object of a kind. A kind that the cluster does
// not serve has none.
func eachOf(ctx context.Context, c client.Client, kind schema.GroupVersionKind, f func(*metav1.PartialObjectMetadata) error, which ...client.ListOption) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err := EachPage(ctx, c, list, func(page *metav1.PartialObjectMetadataList) error {
		for i := range page.Items {
			page.Items[i].SetGroupVersionKind(kind)
			if err := f(&page.Items[i]); err != nil {
				return err
			}
		}
		return nil
	}, which...)
	if apimeta.IsNoMatchError(err) {
		return nil
	}
	return err
}

// EachPage lists what a cluster has of the kind of an empty list, page by page.
func EachPage[List client.ObjectList](ctx context.Context, c client.Reader, empty List, each func(List) error, which ...client.ListOption) error {
	for next := ""; ; {
		page := empty.DeepCopyObject().(List)
		if err := c.List(ctx, page, append(slices.Clone(which), client.Limit(pageSize), client.Continue(next))...); err != nil {
			return fmt.Errorf("list %T: %w", empty, err)
		}
		if err := each(page); err != nil {
			return err
		}
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}
