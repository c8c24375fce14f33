// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
)

// sliceIndex finds derived EndpointSlices by the import that they belong to.
const sliceIndex = "comity.dev/status-import"

func (r *exportReconciler) setup(mgr ctrl.Manager) error {
	changed := &notify.Source{
		Notifiers: []*notify.Notifier{r.options.Observations.Changed(), r.options.Observations.DestinationsChanged(), r.options.PoliciesChanged},
		List:      func(ctx context.Context) ([]types.NamespacedName, error) { return r.exports(ctx, "") },
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("status-serviceexport").
		WithOptions(controller.Options{MaxConcurrentReconciles: r.options.Workers, NewQueue: notify.NewPatientQueue(r.options.Workers, notify.ChangesAtOnce)}).
		For(&mcsv1beta1.ServiceExport{}).
		Watches(&corev1.Service{}, &handler.EnqueueRequestForObject{}).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, namespace client.Object) []reconcile.Request {
			keys, err := r.exports(ctx, namespace.GetName())
			if err != nil { // the cache fails only before it has synced, and then everything is new
				return nil
			}
			requests := make([]reconcile.Request, len(keys))
			for i, key := range keys {
				requests[i].NamespacedName = key
			}
			return requests
		}), builder.WithPredicates(predicate.Or(predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		WatchesRawSource(changed).
		Complete(r)
}

// exports lists the ServiceExports of a namespace, of all if it is empty.
func (r *exportReconciler) exports(ctx context.Context, namespace string) ([]types.NamespacedName, error) {
	return notify.ListKeys(ctx, r.client, &mcsv1beta1.ServiceExportList{}, client.InNamespace(namespace))
}

func (r *importReconciler) setup(mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &discoveryv1.EndpointSlice{}, sliceIndex, func(object client.Object) []string {
		if name := object.GetLabels()[model.LabelServiceName]; name != "" && model.IsManaged(object) {
			return []string{name}
		}
		return nil
	})
	if err != nil {
		return err
	}
	imports := func(ctx context.Context) ([]types.NamespacedName, error) {
		return notify.ListKeys(ctx, r.client, &mcsv1beta1.ServiceImportList{})
	}
	byLabel := handler.EnqueueRequestsFromMapFunc(importOf)
	return ctrl.NewControllerManagedBy(mgr).
		Named("status-serviceimport").
		WithOptions(controller.Options{MaxConcurrentReconciles: r.options.Workers, NewQueue: notify.NewPatientQueue(r.options.Workers, notify.ChangesAtOnce)}).
		For(&mcsv1beta1.ServiceImport{}).
		Watches(&corev1.Service{}, byLabel).
		// Only whether there are slices and endpoints matters, not which.
		Watches(&discoveryv1.EndpointSlice{}, byLabel, builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool {
				return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) || model.IsManaged(e.ObjectOld) != model.IsManaged(e.ObjectNew) ||
					isEmpty(e.ObjectOld) != isEmpty(e.ObjectNew)
			},
		})).
		WatchesRawSource(&notify.Source{Notifiers: []*notify.Notifier{r.options.Observations.Changed()}, List: imports}).
		Complete(r)
}

// importOf is the import to which a derived object belongs by its label.
func importOf(_ context.Context, object client.Object) []reconcile.Request {
	name := object.GetLabels()[model.LabelServiceName]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: name}}}
}

// isEmpty reports whether an EndpointSlice has no endpoint.
func isEmpty(object client.Object) bool {
	slice, ok := object.(*discoveryv1.EndpointSlice)
	return ok && len(slice.Endpoints) == 0
}
