// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/compactslice"
	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/model"
)

// readLocal reads the export, its Service, the slices of the Service, the
// namespace, and what the policies decide about the export.
func (b *base) readLocal(ctx context.Context, key types.NamespacedName) (decide.LocalExport, error) {
	local := decide.LocalExport{Key: key}
	var err error
	if local.Namespace, err = get[corev1.Namespace](ctx, b.client, types.NamespacedName{Name: key.Namespace}); err != nil {
		return local, err
	}
	export, err := get[mcsv1beta1.ServiceExport](ctx, b.client, key)
	if err != nil || export == nil || export.DeletionTimestamp != nil {
		return local, err
	}
	if local.Service, err = get[corev1.Service](ctx, b.client, key); err != nil {
		return local, err
	}
	if local.Slices, err = listSlices(ctx, b.client, client.InNamespace(key.Namespace), client.MatchingFields{indexService: key.Name}); err != nil {
		return local, err
	}
	local.Export, local.Verdict = export, b.Admitter.Admit(ctx, export)
	return local, nil
}

// get reads an object; nil if it does not exist.
func get[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c client.Reader, key types.NamespacedName) (P, error) {
	object := P(new(T))
	if err := c.Get(ctx, key, object); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return object, nil
}

// listSlices reads slices without copying them: there may be thousands of
// endpoints, and neither plan nor apply changes what it is given.
func listSlices(ctx context.Context, c client.Reader, opts ...client.ListOption) ([]*discoveryv1.EndpointSlice, error) {
	slices, err := listCompact(ctx, c, opts...)
	for i := 0; i < len(slices) && err == nil; i++ {
		slices[i], err = compactslice.Open(slices[i])
	}
	return slices, err
}

// listCompact is listSlices for who needs names and labels alone.
func listCompact(ctx context.Context, c client.Reader, opts ...client.ListOption) ([]*discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	if err := c.List(ctx, &list, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, err
	}
	return pointers(list.Items), nil
}

// getSlice reads a slice; nil if it does not exist.
func getSlice(ctx context.Context, c client.Reader, key types.NamespacedName) (*discoveryv1.EndpointSlice, error) {
	slice, err := get[discoveryv1.EndpointSlice](ctx, c, key)
	if slice == nil || err != nil {
		return nil, err
	}
	return compactslice.Open(slice)
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}

// isListed reports whether the list of an import, or a derived slice, names a cluster: as
// long as one does, what was imported of that cluster is not removed.
func isListed(ctx context.Context, reader client.Reader, cluster model.ClusterID) (bool, error) {
	isListing := func(o metav1.Object) bool {
		return slices.Contains(model.Listed(o), cluster) && !isGoing(ctx, reader, o.GetNamespace())
	}
	var services corev1.ServiceList
	if err := reader.List(ctx, &services, client.HasLabels{model.LabelServiceImported}, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list derived Services: %w", err)
	}
	var imports mcsv1beta1.ServiceImportList
	if err := reader.List(ctx, &imports, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list ServiceImports: %w", err)
	}
	if slices.ContainsFunc(services.Items, func(s corev1.Service) bool { return isListing(&s) }) ||
		slices.ContainsFunc(imports.Items, func(s mcsv1beta1.ServiceImport) bool { return isListing(&s) }) {
		return true, nil
	}
	derived, err := listCompact(ctx, reader, client.HasLabels{model.LabelServiceName}, client.MatchingLabels{model.LabelSourceCluster: string(cluster)})
	if err != nil {
		return false, fmt.Errorf("list derived EndpointSlices: %w", err)
	}
	return slices.ContainsFunc(derived, func(s *discoveryv1.EndpointSlice) bool {
		return model.IsManaged(s) && !isGoing(ctx, reader, s.Namespace)
	}), nil
}

// isGoing reports whether a namespace is being deleted: nothing is written there any more,
// and what it has goes with it.
func isGoing(ctx context.Context, reader client.Reader, name string) bool {
	namespace, err := get[corev1.Namespace](ctx, reader, types.NamespacedName{Name: name})
	return err == nil && (namespace == nil || namespace.DeletionTimestamp != nil)
}
