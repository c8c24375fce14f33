// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/model"
)

// StoredImports has what the policies with stage Import decide on now, for a preview of
// policies. It works on every replica.
type StoredImports struct {
	Self model.ClusterID
	// Reader reads Namespaces and ServiceImports from a cache.
	Reader client.Reader
	Peers  Peers
}

// Inputs are those of every export of the other members, and of what is imported,
// sorted by namespace, name and source cluster. Nobody may change what is in them.
func (s StoredImports) Inputs(ctx context.Context) ([]decision.ImportInput, error) {
	var list mcsv1beta1.ServiceImportList
	if err := s.Reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list ServiceImports: %w", err)
	}
	imports := make(map[types.NamespacedName]*mcsv1beta1.ServiceImport, len(list.Items))
	for i := range list.Items {
		imports[client.ObjectKeyFromObject(&list.Items[i])] = &list.Items[i]
	}
	for _, key := range s.Peers.Keys() {
		if _, has := imports[key]; !has {
			imports[key] = nil
		}
	}
	var out []decision.ImportInput
	for key, current := range imports {
		namespace, err := get[corev1.Namespace](ctx, s.Reader, types.NamespacedName{Name: key.Namespace})
		if err != nil {
			return nil, fmt.Errorf("read Namespace %s: %w", key.Namespace, err)
		}
		view := decide.ImportView{Self: s.Self, Peers: decide.PeerViews(s.Peers.Read(key, false)), Local: decide.LocalExport{Key: key, Namespace: namespace}}
		view.Current.Import = current
		decide.ReadList(&view)
		out = append(out, decide.ImportInputs(view)...)
	}
	slices.SortFunc(out, func(a, b decision.ImportInput) int {
		return cmp.Or(cmp.Compare(a.Export.Namespace, b.Export.Namespace), cmp.Compare(a.Export.Name, b.Export.Name), cmp.Compare(a.Source.Cluster, b.Source.Cluster))
	})
	return out, nil
}
