// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/status/compute"
	"github.com/comity-mcs/comity/sync/model"
)

// reevaluation is how long to wait before the policies are evaluated again when
// they could not be: no event says that the cause, such as a deadline, is over.
const reevaluation = 30 * time.Second

// reconcileExport makes the conditions of one ServiceExport what they should be now.
func (r reconciler) reconcileExport(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	export := &mcsv1beta1.ServiceExport{}
	if err := r.client.Get(ctx, req.NamespacedName, export); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if export.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	service, err := r.service(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	in := compute.ExportInput{Export: export, Service: service, Verdict: r.Verdicts.Admit(ctx, export)}
	if seen, ok := r.Observations.Observe(req.NamespacedName); ok {
		in.Observation = &seen
	}
	in.Destinations, in.DestinationsKnown = r.Observations.Destinations(req.NamespacedName)
	if age := r.Now().Sub(export.CreationTimestamp.Time); in.Observation == nil && len(export.Status.Conditions) == 0 && age < r.FirstStatus {
		return ctrl.Result{RequeueAfter: r.FirstStatus - max(0, age)}, nil
	}
	result := ctrl.Result{}
	if in.Verdict.Outcome == decision.NotEvaluated {
		result.RequeueAfter = reevaluation
	}
	old, wanted := export.Status.Conditions, compute.Export(in, metav1.NewTime(r.Now()))
	if compute.SameConditions(old, wanted) {
		return result, nil
	}
	saved, err := r.save(ctx, export, &mcsv1beta1.ServiceExportStatus{Conditions: wanted},
		compute.Urgent(old, wanted), compute.Transitions(r.kind, old, wanted))
	return cmp.Or(saved, result), err
}

// reconcileImport makes the status of one ServiceImport what it should be now.
func (r reconciler) reconcileImport(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	imported := &mcsv1beta1.ServiceImport{}
	if err := r.client.Get(ctx, req.NamespacedName, imported); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	ours := model.IsManaged(imported)
	if imported.DeletionTimestamp != nil || !ours && !r.ForeignImports {
		return ctrl.Result{}, nil
	}
	in, err := r.input(ctx, imported, !ours)
	if err != nil {
		return ctrl.Result{}, err
	}
	if in.Foreign {
		return r.reconcileForeign(ctx, in)
	}
	old, wanted := imported.Status, compute.Import(in, metav1.NewTime(r.Now()))
	if compute.SameImport(old, wanted) {
		return ctrl.Result{}, nil
	}
	isByOthers := func(e metav1.ManagedFieldsEntry) bool { return model.IsByOthers(e, "status") }
	rest := compute.WithoutSurplus(old, wanted)
	if len(rest.Clusters)+len(rest.Conditions) < len(old.Clusters)+len(old.Conditions) && slices.ContainsFunc(imported.ManagedFields, isByOthers) {
		return r.strip(ctx, imported, rest)
	}
	return r.save(ctx, imported, &wanted, compute.ImportUrgent(old, wanted), compute.Transitions(r.kind, old.Conditions, wanted.Conditions))
}

// strip removes from the status of a ServiceImport what is not in rest. An apply would leave it there
// if something else put it there as well, such as the implementation that had the import before.
// The watch event brings the import back to the queue.
func (r reconciler) strip(ctx context.Context, imported *mcsv1beta1.ServiceImport, rest mcsv1beta1.ServiceImportStatus) (ctrl.Result, error) {
	return r.limited(imported, true, func() (bool, error) {
		patch := client.MergeFromWithOptions(imported.DeepCopy(), client.MergeFromWithOptimisticLock{})
		imported.Status = rest
		return r.written(ctx, imported, r.client.Status().Patch(ctx, imported, patch, client.FieldOwner(model.FieldOwner)))
	})
}

// input reads everything that the status of imported depends on. Of a foreign one
// there are no derived objects.
func (r reconciler) input(ctx context.Context, imported *mcsv1beta1.ServiceImport, foreign bool) (compute.ImportInput, error) {
	key := client.ObjectKeyFromObject(imported)
	in := compute.ImportInput{Import: imported, Foreign: foreign}
	if seen, ok := r.Observations.Observe(key); ok {
		in.Observation = &seen
	}
	if foreign {
		return in, nil
	}
	if name := imported.Annotations[model.AnnotationDerivedName]; name != "" {
		service, err := r.service(ctx, client.ObjectKey{Namespace: imported.Namespace, Name: name})
		if err != nil {
			return in, err
		}
		if service != nil && model.IsManaged(service) && service.DeletionTimestamp == nil && service.Labels[model.LabelServiceName] == imported.Name {
			in.Derived = service
		}
	}
	var found discoveryv1.EndpointSliceList
	err := r.client.List(ctx, &found,
		client.InNamespace(imported.Namespace),
		client.MatchingFields{sliceIndex: imported.Name},
		client.UnsafeDisableDeepCopy, // nothing of them is kept or changed
	)
	if err != nil {
		return in, fmt.Errorf("list the derived EndpointSlices of ServiceImport %s: %w", key, err)
	}
	in.Slices = len(found.Items) > 0
	in.Endpoints = slices.ContainsFunc(found.Items, func(slice discoveryv1.EndpointSlice) bool { return len(slice.Endpoints) > 0 })
	return in, nil
}

// reconcileForeign adds what Comity knows to the status of a ServiceImport that
// another implementation made, on fields that have no other owner.
func (r reconciler) reconcileForeign(ctx context.Context, in compute.ImportInput) (ctrl.Result, error) {
	imported := in.Import
	if in.Observation == nil {
		return ctrl.Result{}, nil
	}
	wanted := compute.Import(in, metav1.NewTime(r.Now()))
	last, known := r.foreign.Get(imported.UID)
	switch {
	case len(wanted.Conditions) == 0 && !model.AppliedBy(imported, model.FieldOwner, "status"),
		known && compute.SameImport(last.(mcsv1beta1.ServiceImportStatus), wanted):
		return ctrl.Result{}, nil
	case len(wanted.Conditions) > 0 && compute.Covers(imported.Status, wanted):
		r.foreign.Add(imported.UID, wanted)
		return ctrl.Result{}, nil
	}
	return r.limited(imported, false, func() (bool, error) {
		given := wanted
		written, err := r.write(ctx, imported, &given)
		if fields := owned(err); len(fields) > 0 {
			ctrl.LoggerFrom(ctx).V(1).Info("fields of this ServiceImport's status belong to its implementation; left alone", "fields", fields)
			given = without(wanted, fields)
			written, err = r.write(ctx, imported, &given) // an error if another field got an owner in between
		}
		if written {
			r.foreign.Add(imported.UID, wanted)
			r.recordEvents(ctx, imported, compute.Transitions(r.kind, imported.Status.Conditions, given.Conditions))
		}
		return written, err
	})
}

// without leaves out the conditions to which the fields belong; a path is like
// .status.conditions[type="Ready"].reason.
func without(status mcsv1beta1.ServiceImportStatus, fields []string) mcsv1beta1.ServiceImportStatus {
	about := func(part string) bool {
		return slices.ContainsFunc(fields, func(field string) bool { return strings.Contains(field, part) })
	}
	rest := mcsv1beta1.ServiceImportStatus{}
	if !about(".clusters") {
		rest.Clusters = status.Clusters
	}
	rest.Conditions = model.Without(status.Conditions, func(c metav1.Condition) bool { return about(fmt.Sprintf(".conditions[type=%q]", c.Type)) })
	return rest
}
