// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// reconciler is what those of ServiceExports and of ServiceImports share.
type reconciler struct {
	client  client.Client
	options Options
	limiter *rateLimiter
}

// save writes the status that is wanted of an object, once its limit allows it, and then
// records the conditions that moved.
func save[Status mcsv1beta1.ServiceExportStatus | mcsv1beta1.ServiceImportStatus](
	ctx context.Context, r reconciler, object client.Object, kind string, wanted Status, urgent bool, moved []metav1.Condition,
) (ctrl.Result, error) {
	now := r.options.Now()
	if wait := r.limiter.delay(object.GetUID(), urgent, now); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	written, err := write(ctx, r.client, object, kind, wanted, client.ForceOwnership)
	if written {
		r.limiter.wrote(object.GetUID(), urgent, now)
		recordEvents(ctx, r.options.Recorder, object, kind, moved)
	}
	return ctrl.Result{}, err
}

// write applies status to the very version of object that it was computed from
// and reports whether it was written.
//
// Without that precondition a stale cache would make the same transition twice,
// with another time and a second event. If the object changed or is gone, that is
// no error: its watch event brings it back to the queue. Nor is it one that nothing
// is written while the namespace of Comity is being deleted. A field of another owner
// is an error, unless options force the apply.
func write[Status mcsv1beta1.ServiceExportStatus | mcsv1beta1.ServiceImportStatus](
	ctx context.Context, c client.Client, object client.Object, kind string, status Status, options ...client.SubResourceApplyOption,
) (bool, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return false, fmt.Errorf("convert the status of %s %s: %w", kind, client.ObjectKeyFromObject(object), err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": content}}
	u.SetAPIVersion(mcsv1beta1.GroupVersion.String())
	u.SetKind(kind)
	u.SetNamespace(object.GetNamespace())
	u.SetName(object.GetName())
	u.SetUID(object.GetUID())
	u.SetResourceVersion(object.GetResourceVersion())
	options = append(options, client.FieldOwner(model.FieldOwner))
	err = c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), options...)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err) && len(owned(err)) == 0:
		logger(ctx).V(1).Info("the object changed meanwhile; waiting for its new version")
		return false, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("apply the status of %s %s: %w", kind, client.ObjectKeyFromObject(object), err)
	}
	return true, nil
}

// owned lists the fields that have another owner, from the error of an apply
// without force; none if it failed for another reason.
func owned(err error) []string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var fields []string
	for _, cause := range status.Status().Details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			fields = append(fields, cause.Field)
		}
	}
	return fields
}
