// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/status/compute"
)

// reevaluation is how long to wait before the policies are evaluated again when
// they could not be: no event says that the cause, such as a deadline, is over.
const reevaluation = 30 * time.Second

// exportReconciler writes the conditions of ServiceExports.
type exportReconciler struct {
	reconciler
}

// Reconcile makes the conditions of one ServiceExport what they should be now.
func (r *exportReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	export := &mcsv1beta1.ServiceExport{}
	if err := r.client.Get(ctx, req.NamespacedName, export); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if export.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	in, err := r.input(ctx, req, export)
	if err != nil {
		return ctrl.Result{}, err
	}
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
	const kind = mcsv1beta1.ServiceExportKindName
	saved, err := r.save(ctx, export, kind, &mcsv1beta1.ServiceExportStatus{Conditions: wanted},
		compute.ExportUrgent(old, wanted), compute.Transitions(kind, old, wanted))
	return cmp.Or(saved, result), err
}

// input reads everything that the conditions of export depend on.
func (r *exportReconciler) input(ctx context.Context, req ctrl.Request, export *mcsv1beta1.ServiceExport) (compute.ExportInput, error) {
	service, err := r.service(ctx, req.NamespacedName)
	if err != nil {
		return compute.ExportInput{}, err
	}
	in := compute.ExportInput{Export: export, Service: service, Verdict: r.Verdicts.Admit(ctx, export)}
	if seen, ok := r.Observations.Observe(req.NamespacedName); ok {
		in.Observation = &seen
	}
	in.Destinations, in.DestinationsKnown = r.Observations.Destinations(req.NamespacedName)
	return in, nil
}
