// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// isListed reports whether the list of an import, or a derived slice, names a cluster: as
// long as one does, what was imported of that cluster is not removed.
func isListed(ctx context.Context, reader client.Reader, cluster model.ClusterID) (bool, error) {
	var services corev1.ServiceList
	if err := reader.List(ctx, &services, client.HasLabels{model.LabelServiceImported}, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list derived Services: %w", err)
	}
	for n := range services.Items {
		if slices.Contains(model.Listed(&services.Items[n]), cluster) && !isGoing(ctx, reader, services.Items[n].Namespace) {
			return true, nil
		}
	}
	var imports mcsv1beta1.ServiceImportList
	if err := reader.List(ctx, &imports, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list ServiceImports: %w", err)
	}
	for n := range imports.Items {
		if slices.Contains(model.Listed(&imports.Items[n]), cluster) && !isGoing(ctx, reader, imports.Items[n].Namespace) {
			return true, nil
		}
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
