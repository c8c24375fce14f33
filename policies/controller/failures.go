// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

const (
	// failuresOwner is Comity's in server-side apply where it reports failures: it
	// owns other fields of the status than fieldOwner, because every replica reports
	// its own failures while the leader alone writes the rest.
	failuresOwner = "comity-failures"
	// quarantineOwner is that of whichever replica found that a policy is in quarantine.
	quarantineOwner = "comity-quarantine"
	// reportInterval is how long failures are collected before they are reported.
	reportInterval = 2 * time.Second
	// failuresKept is how long a failure is shown after the last one.
	failuresKept = time.Hour
)

// reportFailures adds to the status of each policy what failed in this replica since
// it last did. It returns when to do so again because another replica wrote in between;
// zero for after the next failure.
func (r *reconciler) reportFailures(ctx context.Context, policies []v1alpha1.ExportPolicy) (again time.Duration, _ error) {
	failed := r.options.Engine.Failures()
	for name, count := range r.reported {
		if failed[name].Count < count { // another version was loaded, which counts from 0
			delete(r.reported, name)
		}
	}
	var errs []error
	for i := range policies {
		policy := &policies[i]
		failure := failed[policy.Name]
		if failure.Count == r.reported[policy.Name] {
			continue
		}
		switch err := r.reportFailure(ctx, policy, failure); {
		case isOutdated(err):
			again = reportInterval
		case err != nil:
			errs = append(errs, err)
		default:
			r.reported[policy.Name] = failure.Count
		}
	}
	return again, errors.Join(errs...)
}

func (r *reconciler) reportFailure(ctx context.Context, policy *v1alpha1.ExportPolicy, failure engine.Failure) error {
	now := metav1.NewTime(r.options.Clock.Now()).Rfc3339Copy()
	condition := metav1.Condition{
		Type:               v1alpha1.ConditionEvaluated,
		Status:             metav1.ConditionFalse,
		Reason:             v1alpha1.ReasonEvaluationFailed,
		ObservedGeneration: policy.Generation,
		LastTransitionTime: now,
	}
	count := failure.Count - r.reported[policy.Name]
	if stored := evaluated(policy); stored != nil {
		condition.LastTransitionTime = stored.LastTransitionTime
		if stored.ObservedGeneration == policy.Generation && policy.Status.Failures != nil {
			count += policy.Status.Failures.Count
		}
	}
	if engine.IsExhausted(failure.Message) {
		condition.Reason = v1alpha1.ReasonResourceExhausted
	}
	condition.Message = model.Bound(fmt.Sprintf("failed evaluations: %d; the last for %s (%s): %s", count, failure.Object, failure.Operation, failure.Message), maxMessage)
	err := r.apply(ctx, policy, v1alpha1.ExportPolicyStatus{
		Conditions: []metav1.Condition{condition},
		Failures: &v1alpha1.Failures{
			Count: count, LastObject: failure.Object, LastOperation: string(failure.Operation), LastTime: now,
		},
	}, failuresOwner)
	if err != nil {
		return err
	}
	r.recordEvent(policy, condition)
	ctrl.LoggerFrom(ctx).Error(errors.New(failure.Message), "evaluations of a policy failed", logPolicy, policy.Name, logReason, condition.Reason, "count", count)
	return nil
}

// reportQuarantine writes that a policy is in quarantine, so that every replica reads that
// before it loads it, or that it is no more.
func (r *reconciler) reportQuarantine(ctx context.Context, policy *v1alpha1.ExportPolicy, result engine.Result) error {
	var now *v1alpha1.Quarantine
	if result.Quarantine != "" {
		now = &v1alpha1.Quarantine{
			Digest: engine.FromObject(policy, r.options.Clock.Now()).Digest(), Message: model.Bound(result.Quarantine, model.MaxEventNote),
		}
	}
	was := policy.Status.Quarantine
	if isTemporary(result.Err) || (now == nil) == (was == nil) && (now == nil || now.Digest == was.Digest) {
		return nil
	}
	if err := r.apply(ctx, policy, v1alpha1.ExportPolicyStatus{Quarantine: now}, quarantineOwner); !isOutdated(err) {
		return err
	}
	return nil // the new version of the object comes
}

// forgetFailures removes from the status what failed in another generation of the
// policy, or long ago.
func (r *reconciler) forgetFailures(ctx context.Context, policy *v1alpha1.ExportPolicy) error {
	stored := evaluated(policy)
	if stored == nil || stored.ObservedGeneration == policy.Generation && r.forgottenIn(policy) > 0 {
		return nil
	}
	if err := r.apply(ctx, policy, v1alpha1.ExportPolicyStatus{}, failuresOwner); !isOutdated(err) {
		return err
	}
	return nil // the new version of the object comes
}

// nextForgotten is when the next failure is to be forgotten; 0 if there is none.
func (r *reconciler) nextForgotten(policies []v1alpha1.ExportPolicy) (next time.Duration) {
	for i := range policies {
		next = earlier(next, max(r.forgottenIn(&policies[i]), 0))
	}
	return next
}

func (r *reconciler) forgottenIn(policy *v1alpha1.ExportPolicy) time.Duration {
	if policy.Status.Failures == nil {
		return 0
	}
	return policy.Status.Failures.LastTime.Add(failuresKept).Sub(r.options.Clock.Now())
}

func evaluated(policy *v1alpha1.ExportPolicy) *metav1.Condition {
	return meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionEvaluated)
}
