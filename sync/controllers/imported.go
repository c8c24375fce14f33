// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// Imported lists, by the cluster that exports it, what the imports that Comity
// made here are of: what a process that starts finds of the time before it. It is
// a peer.Options.Imported.
func Imported(ctx context.Context, reader client.Reader) (map[model.ClusterID][]types.NamespacedName, error) {
	var imports mcsv1beta1.ServiceImportList
	if err := reader.List(ctx, &imports, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	found := map[model.ClusterID]map[types.NamespacedName]bool{}
	add := func(id model.ClusterID, key types.NamespacedName) {
		if found[id] == nil {
			found[id] = map[types.NamespacedName]bool{}
		}
		found[id][key] = true
	}
	for n := range imports.Items {
		for _, id := range model.ImportedFrom(&imports.Items[n]) {
			add(id, client.ObjectKeyFromObject(&imports.Items[n]))
		}
	}
	// A ServiceImport may have been deleted, or not say yet of what it consists.
	derived, err := listCompact(ctx, reader, client.HasLabels{model.LabelServiceName, model.LabelSourceCluster})
	if err != nil {
		return nil, err
	}
	for _, s := range derived {
		if model.IsManaged(s) {
			add(model.ClusterID(s.Labels[model.LabelSourceCluster]), types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[model.LabelServiceName]})
		}
	}
	of := map[model.ClusterID][]types.NamespacedName{}
	for id, keys := range found {
		of[id] = slices.Collect(maps.Keys(keys))
	}
	return of, nil
}
