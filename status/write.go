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
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

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
