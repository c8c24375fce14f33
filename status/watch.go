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
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// sliceIndex finds derived EndpointSlices by the import that they belong to.
const sliceIndex = "comity.dev/status-import"

// fanOut is a source that hands every event to both controllers; two sources
// on one channel would share the events out between them. The default size of its
// buffer would be set by both while they start.
func fanOut(changed <-chan event.GenericEvent) source.Source {
	return source.Channel(changed, &handler.EnqueueRequestForObject{}, source.WithBufferSize[client.Object, reconcile.Request](1024))
}

func (r *exportReconciler) setup(mgr ctrl.Manager, changed source.Source) error {
	b := ctrl.NewControllerManagedBy(mgr).
		Named("status-serviceexport").
		WithOptions(controller.Options{MaxConcurrentReconciles: r.options.Workers}).
		For(&mcsv1beta1.ServiceExport{}).
		Watches(&corev1.Service{}, &handler.EnqueueRequestForObject{}).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, namespace client.Object) []reconcile.Request {
			return r.exports(ctx, namespace.GetName())
		}), builder.WithPredicates(predicate.Or(predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		WatchesRawSource(changed)
	if r.options.Recheck != nil {
		b = b.WatchesRawSource(source.Channel(r.options.Recheck, handler.EnqueueRequestsFromMapFunc(r.recheck)))
	}
	return b.Complete(r)
}

// recheck lists the exports that an event of Options.Recheck is about.
func (r *exportReconciler) recheck(ctx context.Context, object client.Object) []reconcile.Request {
	if object == nil {
		return r.exports(ctx, "")
	}
	if object.GetName() != "" && object.GetNamespace() != "" {
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(object)}}
	}
	return r.exports(ctx, object.GetNamespace())
}

// exports lists the ServiceExports of a namespace, of all if it is empty.
func (r *exportReconciler) exports(ctx context.Context, namespace string) []reconcile.Request {
	var list mcsv1beta1.ServiceExportList
	if err := r.client.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		// The cache fails only before it has synced, and then everything is new.
		logger(ctx).Error(err, "list the ServiceExports to look at again")
		return nil
	}
	requests := make([]reconcile.Request, len(list.Items))
	for i := range list.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&list.Items[i])
	}
	return requests
}

func (r *importReconciler) setup(mgr ctrl.Manager, changed source.Source) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &discoveryv1.EndpointSlice{}, sliceIndex, func(object client.Object) []string {
		if name := object.GetLabels()[model.LabelServiceName]; name != "" && model.IsManaged(object) {
			return []string{name}
		}
		return nil
	})
	if err != nil {
		return err
	}
	byLabel := handler.EnqueueRequestsFromMapFunc(importOf)
	return ctrl.NewControllerManagedBy(mgr).
		Named("status-serviceimport").
		WithOptions(controller.Options{MaxConcurrentReconciles: r.options.Workers}).
		For(&mcsv1beta1.ServiceImport{}).
		Watches(&corev1.Service{}, byLabel).
		// Only whether there are slices and endpoints matters, not which.
		Watches(&discoveryv1.EndpointSlice{}, byLabel, builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool {
				return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) || model.IsManaged(e.ObjectOld) != model.IsManaged(e.ObjectNew) ||
					isEmpty(e.ObjectOld) != isEmpty(e.ObjectNew)
			},
		})).
		WatchesRawSource(changed).
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
