// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

const (
	// failuresOwner is Comity's in server-side apply where it reports failures and
	// quarantines: it owns other fields of the status than model.FieldOwner, because every replica
	// reports its own while the leader alone writes the rest.
	failuresOwner = "comity-failures"
	// reportInterval is how long failures are collected before they are reported.
	reportInterval = 2 * time.Second
	// failuresKept is how long a failure is shown after the last one.
	failuresKept = time.Hour
)

// reportEvaluations writes what every replica knows of its evaluations into the status of each
// policy. It is repeated if another replica wrote in between, and when a failure is to be
// forgotten.
func (r *reconciler) reportEvaluations(ctx context.Context, policies []policy) error {
	failed := r.Engine.Failures()
	// Another version, if one was loaded, counts from 0.
	maps.DeleteFunc(r.reported, func(name string, count int64) bool { return failed[name].Count < count })
	var errs []error
	for _, p := range policies {
		switch err := r.reportEvaluation(ctx, p, failed[p.Name]); {
		case isOutdated(err):
			r.repeatIn(reportInterval)
		case err != nil:
			errs = append(errs, err)
		default:
			r.reported[p.Name] = failed[p.Name].Count
			r.repeatIn(r.forgottenIn(p))
		}
	}
	return errors.Join(errs...)
}

// reportEvaluation adds to the status of a policy what failed in this replica since it last did,
// and forgets what failed in another generation, or long ago. It writes whether the policy is in
// quarantine, so that every replica reads that before it loads it.
func (r *reconciler) reportEvaluation(ctx context.Context, p policy, failure engine.Failure) error {
	status := v1alpha1.ExportPolicyStatus{Quarantine: r.quarantine(p)}
	stored := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionEvaluated)
	added := failure.Count - r.reported[p.Name]
	isCurrent := stored != nil && stored.ObservedGeneration == p.Generation && r.forgottenIn(p) > 0
	if isCurrent {
		status.Conditions, status.Failures = []metav1.Condition{*stored}, p.Status.Failures
	}
	if added == 0 && isCurrent == (stored != nil) && equality.Semantic.DeepEqual(p.Status.Quarantine, status.Quarantine) {
		return nil
	}
	if added > 0 {
		r.addFailures(&status, p, failure, added)
	}
	if err := r.apply(ctx, p, status, failuresOwner); err != nil || added == 0 {
		return err
	}
	r.recordEvent(p, status.Conditions[0])
	// The message, which is in the status, may repeat content of an object.
	ctrl.LoggerFrom(ctx).Error(errors.New("see its condition Evaluated"), "evaluations of a policy failed",
		logPolicy, p.Name, logReason, status.Conditions[0].Reason, "count", status.Failures.Count)
	return nil
}

// addFailures adds to a status, which has what is shown of earlier ones, those of this replica.
func (r *reconciler) addFailures(status *v1alpha1.ExportPolicyStatus, p policy, last engine.Failure, count int64) {
	if status.Failures != nil {
		count += status.Failures.Count
	}
	reason := v1alpha1.ReasonEvaluationFailed
	if engine.IsExhausted(last.Message) {
		reason = v1alpha1.ReasonResourceExhausted
	}
	message := fmt.Sprintf("failed evaluations: %d; the last for %s (%s): %s", count, last.Object, last.Operation, last.Message)
	c := condition(v1alpha1.ConditionEvaluated, metav1.ConditionFalse, reason, model.Bound(message, maxMessage))
	status.Conditions = model.Stamped([]metav1.Condition{c}, p.Status.Conditions, p.Generation, r.now())
	status.Failures = &v1alpha1.Failures{Count: count, LastObject: last.Object, LastOperation: string(last.Operation), LastTime: r.now()}
}

// quarantine is why the policy is in quarantine; nil if it is not. While that is not known, it is
// what is stored.
func (r *reconciler) quarantine(p policy) *v1alpha1.Quarantine {
	switch {
	case p.isUntried():
		return p.Status.Quarantine
	case p.Err == nil || !engine.IsExhausted(p.Err.Error()):
		return nil
	}
	return &v1alpha1.Quarantine{
		Digest: engine.FromObject(p.ExportPolicy, r.Clock.Now()).Digest(), Message: model.Bound(p.Err.Error(), model.MaxEventNote),
	}
}

// forgottenIn is in how long the failures that are shown are to be forgotten; 0 if there are none.
func (r *reconciler) forgottenIn(p policy) time.Duration {
	if p.Status.Failures == nil {
		return 0
	}
	return p.Status.Failures.LastTime.Add(failuresKept).Sub(r.Clock.Now())
}
