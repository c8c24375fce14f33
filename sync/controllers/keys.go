// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
)

// Indexes of the manager's cache and of that of the exchange. With them the work for one key is
// proportional to that Service's objects and to nothing else.
const (
	// indexService finds slices by the Service that they belong to.
	indexService = "comity.service"
	// indexImport finds derived slices and Services by the import's name.
	indexImport = "comity.import"
	// indexExport finds records and slice copies by the export's namespace/name,
	// in whatever exchange namespace.
	indexExport = "comity.export"
	// indexDerived finds ServiceImports by the first choice of a name for their
	// derived Service.
	indexDerived = "comity.derived"
)

// addIndexes adds those of the manager's cache, and those of the cache of the exchange.
func addIndexes(ctx context.Context, own, exchange client.FieldIndexer) error {
	byLabel := func(label string) client.IndexerFunc {
		return func(o client.Object) []string {
			if value := o.GetLabels()[label]; value != "" {
				return []string{value}
			}
			return nil
		}
	}
	byName := func(o client.Object) []string { return []string{o.GetName()} }
	return errors.Join(
		own.IndexField(ctx, &discoveryv1.EndpointSlice{}, indexService, byLabel(discoveryv1.LabelServiceName)),
		own.IndexField(ctx, &discoveryv1.EndpointSlice{}, indexImport, byLabel(model.LabelServiceName)),
		own.IndexField(ctx, &corev1.Service{}, indexImport, byLabel(model.LabelServiceName)),
		own.IndexField(ctx, &mcsv1beta1.ServiceImport{}, indexDerived, func(o client.Object) []string {
			return []string{model.DerivedName(o.GetName())}
		}),
		exchange.IndexField(ctx, &discoveryv1.EndpointSlice{}, indexExport, exportIndex),
		exchange.IndexField(ctx, &exchangev1alpha1.ExportRecord{}, indexExport, byName),
		exchange.IndexField(ctx, &exchangev1alpha1.ImportRecord{}, indexExport, byName),
		exchange.IndexField(ctx, &exchangev1alpha1.ExportRecord{}, indexEnded, endedIndex),
	)
}

func exportIndex(o client.Object) []string {
	if key, ok := model.LabeledExport(o.GetLabels()); ok {
		return []string{key.String()}
	}
	return nil
}

func request(key types.NamespacedName) reconcile.Request {
	return reconcile.Request{NamespacedName: key}
}

// exports lists the keys of all ServiceExports, or of those of one namespace.
func (b *base) exports(ctx context.Context, opts ...client.ListOption) ([]types.NamespacedName, error) {
	return notify.ListKeys(ctx, b.client, &mcsv1beta1.ServiceExportList{}, opts...)
}

func (b *base) isExported(ctx context.Context, key types.NamespacedName) bool {
	return b.client.Get(ctx, key, &mcsv1beta1.ServiceExport{}) == nil
}

// peerKeysIn are what the other members export from a namespace, or from all if that is empty.
func (b *base) peerKeysIn(namespace string) []types.NamespacedName {
	return model.Without(b.Peers.Keys(), func(key types.NamespacedName) bool { return namespace != "" && key.Namespace != namespace })
}

// mapped is a handler of objects that users change, derived one of those that Comity writes.
func mapped(keys func(context.Context, client.Object) []types.NamespacedName) handler.EventHandler {
	return notify.Handler{Keys: keys, From: notify.Own}
}

func derived(keys func(context.Context, client.Object) []types.NamespacedName) handler.EventHandler {
	return notify.Handler{Keys: keys, From: notify.Derived}
}

// keyIf is the one key, or none.
func keyIf(key types.NamespacedName, is bool) []types.NamespacedName {
	if is {
		return []types.NamespacedName{key}
	}
	return nil
}

// exportedService returns the key of the export that a Service belongs to, if it is exported.
func (b *base) exportedService(ctx context.Context, o client.Object) []types.NamespacedName {
	key := client.ObjectKeyFromObject(o)
	return keyIf(key, b.isExported(ctx, key))
}

// exportedSlice returns the key of the export that a slice belongs to, if it is exported.
func (b *base) exportedSlice(ctx context.Context, o client.Object) []types.NamespacedName {
	key := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetLabels()[discoveryv1.LabelServiceName]}
	return keyIf(key, key.Name != "" && b.isExported(ctx, key))
}

// copiedSlice returns the key of the export that a slice copy belongs to.
func copiedSlice(_ context.Context, o client.Object) []types.NamespacedName {
	return keyIf(model.LabeledExport(o.GetLabels()))
}

// importedObject returns the key of the import that a derived object belongs to.
// For a Service that has or had a derived name without being derived, it returns
// the imports that this name is the first choice of.
func (b *base) importedObject(ctx context.Context, o client.Object) []types.NamespacedName {
	if name := o.GetLabels()[model.LabelServiceName]; name != "" {
		return []types.NamespacedName{{Namespace: o.GetNamespace(), Name: name}}
	}
	if _, isService := o.(*corev1.Service); !isService || !strings.HasPrefix(o.GetName(), "derived-") {
		return nil
	}
	plain := strings.Join(strings.SplitN(o.GetName(), "-", 3)[:2], "-")
	keys, err := notify.ListKeys(ctx, b.client, &mcsv1beta1.ServiceImportList{}, client.InNamespace(o.GetNamespace()), client.MatchingFields{indexDerived: plain})
	if err != nil {
		return nil
	}
	return keys
}

// namespaceLifecycle passes events that decide whether a namespace can be written
// to, from where is imported into it, in which tiers, and what happens there to endpoints
// of lost clusters.
var namespaceLifecycle = lifecycle(func(before, now client.Object) bool {
	return differs(before.GetAnnotations(), now.GetAnnotations(), model.AnnotationOnLost, model.AnnotationImportFrom, model.AnnotationTiers)
})

// lifecycle passes the events of objects that come, also after the start, of which the rest
// is listed, begin to go, go, or change in something that matters.
func lifecycle(changes func(before, now client.Object) bool) predicate.Funcs {
	return predicate.Funcs{CreateFunc: notify.NotInitial.CreateFunc, UpdateFunc: func(e event.UpdateEvent) bool {
		return (e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil) || changes(e.ObjectOld, e.ObjectNew)
	}}
}

// differs reports whether one of the keys was set, changed or removed.
func differs(before, now map[string]string, keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool {
		was, had := before[key]
		is, has := now[key]
		return had != has || was != is
	})
}

// importChange passes changes of a Namespace in what is compared before an import, or what
// import policies read of it.
func (b *base) importChange() predicate.Funcs {
	return lifecycle(func(before, now client.Object) bool {
		isRead := b.ImportAdmitter != nil && (!maps.Equal(before.GetLabels(), now.GetLabels()) || !maps.Equal(before.GetAnnotations(), now.GetAnnotations()))
		return isRead || differs(before.GetLabels(), now.GetLabels(), b.IdentityLabels...)
	})
}
