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
func (r *reconciler) reportEvaluations(ctx context.Context, policies []v1alpha1.ExportPolicy, results []engine.Result) error {
	failed := r.Engine.Failures()
	// Another version, if one was loaded, counts from 0.
	maps.DeleteFunc(r.reported, func(name string, count int64) bool { return failed[name].Count < count })
	var errs []error
	for i := range policies {
		policy := &policies[i]
		switch err := r.reportEvaluation(ctx, policy, results[i], failed[policy.Name]); {
		case isOutdated(err):
			r.repeatIn(reportInterval)
		case err != nil:
			errs = append(errs, err)
		default:
			r.reported[policy.Name] = failed[policy.Name].Count
			r.repeatIn(r.forgottenIn(policy))
		}
	}
	return errors.Join(errs...)
}

// reportEvaluation adds to the status of a policy what failed in this replica since it last did,
// and forgets what failed in another generation, or long ago. It writes whether the policy is in
// quarantine, so that every replica reads that before it loads it.
func (r *reconciler) reportEvaluation(ctx context.Context, policy *v1alpha1.ExportPolicy, result engine.Result, failure engine.Failure) error {
	status := v1alpha1.ExportPolicyStatus{Quarantine: r.quarantine(policy, result)}
	stored := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionEvaluated)
	added := failure.Count - r.reported[policy.Name]
	isCurrent := stored != nil && stored.ObservedGeneration == policy.Generation && r.forgottenIn(policy) > 0
	if isCurrent {
		status.Conditions, status.Failures = []metav1.Condition{*stored}, policy.Status.Failures
	}
	if added == 0 && isCurrent == (stored != nil) && equality.Semantic.DeepEqual(policy.Status.Quarantine, status.Quarantine) {
		return nil
	}
	if added > 0 {
		r.addFailures(&status, policy, failure, added)
	}
	if err := r.apply(ctx, policy, status, failuresOwner); err != nil || added == 0 {
		return err
	}
	r.recordEvent(policy, status.Conditions[0])
	// The message, which is in the status, may repeat content of an object.
	ctrl.LoggerFrom(ctx).Error(errors.New("see its condition Evaluated"), "evaluations of a policy failed",
		logPolicy, policy.Name, logReason, status.Conditions[0].Reason, "count", status.Failures.Count)
	return nil
}

// addFailures adds to a status, which has what is shown of earlier ones, those of this replica.
func (r *reconciler) addFailures(status *v1alpha1.ExportPolicyStatus, policy *v1alpha1.ExportPolicy, last engine.Failure, count int64) {
	if status.Failures != nil {
		count += status.Failures.Count
	}
	reason := v1alpha1.ReasonEvaluationFailed
	if engine.IsExhausted(last.Message) {
		reason = v1alpha1.ReasonResourceExhausted
	}
	message := fmt.Sprintf("failed evaluations: %d; the last for %s (%s): %s", count, last.Object, last.Operation, last.Message)
	c := condition(v1alpha1.ConditionEvaluated, metav1.ConditionFalse, reason, model.Bound(message, maxMessage))
	status.Conditions = model.Stamped([]metav1.Condition{c}, policy.Status.Conditions, policy.Generation, r.now())
	status.Failures = &v1alpha1.Failures{Count: count, LastObject: last.Object, LastOperation: string(last.Operation), LastTime: r.now()}
}

// quarantine is why the policy is in quarantine; nil if it is not. While that is not known, it is
// what is stored.
func (r *reconciler) quarantine(policy *v1alpha1.ExportPolicy, result engine.Result) *v1alpha1.Quarantine {
	switch {
	case isTemporary(result.Err):
		return policy.Status.Quarantine
	case result.Err == nil || !engine.IsExhausted(result.Err.Error()):
		return nil
	}
	return &v1alpha1.Quarantine{
		Digest: engine.FromObject(policy, r.Clock.Now()).Digest(), Message: model.Bound(result.Err.Error(), model.MaxEventNote),
	}
}

// forgottenIn is in how long the failures that are shown are to be forgotten; 0 if there are none.
func (r *reconciler) forgottenIn(policy *v1alpha1.ExportPolicy) time.Duration {
	if policy.Status.Failures == nil {
		return 0
	}
	return policy.Status.Failures.LastTime.Add(failuresKept).Sub(r.Clock.Now())
}
