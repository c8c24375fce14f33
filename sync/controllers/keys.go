// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
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
		exchange.IndexField(ctx, &discoveryv1.EndpointSlice{}, indexExport, func(o client.Object) []string {
			if key, is := model.LabeledExport(o.GetLabels()); is {
				return []string{key.String()}
			}
			return nil
		}),
		exchange.IndexField(ctx, &exchangev1alpha1.ExportRecord{}, indexExport, byName),
		exchange.IndexField(ctx, &exchangev1alpha1.ImportRecord{}, indexExport, byName),
	)
}

func request(key types.NamespacedName) reconcile.Request {
	return reconcile.Request{NamespacedName: key}
}

// exports lists the keys of the ServiceExports of a namespace, or of all if that is empty.
func (b *base) exports(ctx context.Context, namespace string) ([]types.NamespacedName, error) {
	return notify.ListKeys(ctx, b.client, &mcsv1beta1.ServiceExportList{}, client.InNamespace(namespace))
}

// concerned is the namespace that a change of a Namespace concerns: this one, or all, which is
// empty, if it is an exchange namespace of this cluster.
func (b *base) concerned(namespace client.Object) string {
	if namespace.GetLabels()[model.LabelExchangeFrom] == string(b.Self) {
		return ""
	}
	return namespace.GetName()
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

// exported returns the key of the export that a Service, or a slice of one, belongs to, if it
// is exported.
func (b *base) exported(ctx context.Context, o client.Object) []types.NamespacedName {
	key := client.ObjectKeyFromObject(o)
	if _, isSlice := o.(*discoveryv1.EndpointSlice); isSlice {
		key.Name = o.GetLabels()[discoveryv1.LabelServiceName]
	}
	return keyIf(key, key.Name != "" && b.client.Get(ctx, key, &mcsv1beta1.ServiceExport{}) == nil)
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
	keys, _ := notify.ListKeys(ctx, b.client, &mcsv1beta1.ServiceImportList{}, client.InNamespace(o.GetNamespace())) // a cache: it does not fail
	return model.Without(keys, func(key types.NamespacedName) bool { return model.DerivedName(key.Name) != plain })
}
