// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/findings"
	"github.com/comity-mcs/comity/policies/replicas"
	"github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

const (
	// findingsInterval is how long changes of findings are collected.
	findingsInterval = time.Second
	// countInterval is how often the leader counts replicas, and recountInterval how
	// often while one lags.
	countInterval   = 10 * time.Second
	recountInterval = 2 * time.Second
	// reviewPatience is how long the status of the policies before is shown while exports
	// are reviewed with those in use now; then it shows what was reviewed so far.
	reviewPatience = time.Minute
	// maxLagging is how many replicas a condition names.
	maxLagging = 3
)

// observed is what the leader knows beside the policies.
type observed struct {
	// replicas are nil if they could not be read, or not completely; problem says why. It may
	// be that this replica could not state what it enforces.
	replicas replicas.Statements
	problem  error
	// findings are nil if they are not complete: the stored ones stay.
	findings *findings.Findings
}

// observe reads what the replicas state and what audits found.
func (r *reconciler) observe(ctx context.Context, seen *observed) {
	if r.Replicas != nil && seen.problem == nil {
		r.repeatIn(countInterval)
		seen.replicas, seen.problem = r.Replicas.Read(ctx)
	}
	if r.Findings == nil {
		return
	}
	switch complete, err := r.isReviewed(ctx); {
	case err != nil:
		ctrl.LoggerFrom(ctx).Error(err, "cannot list ServiceExports, so the violations of policies stay as they are")
		r.repeatIn(countInterval)
	case complete:
		seen.findings = r.Findings
	default:
		r.repeatIn(findingsInterval)
	}
}

// isReviewed reports whether every export was reviewed with the policies in use, or enough
// time has passed for that.
func (r *reconciler) isReviewed(ctx context.Context) (bool, error) {
	var exports mcsv1beta1.ServiceExportList
	if err := r.client.List(ctx, &exports, client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	keys := make([]types.NamespacedName, 0, len(exports.Items))
	for i := range exports.Items {
		if exports.Items[i].DeletionTimestamp == nil {
			keys = append(keys, client.ObjectKeyFromObject(&exports.Items[i]))
		}
	}
	now, digest := r.Clock.Now(), r.Engine.Digest()
	if r.reviewed != digest {
		r.reviewed, r.since = digest, now
	}
	return r.Findings.Retain(keys, digest) || now.Sub(r.since) >= reviewPatience, nil
}

// inForce is the condition InForce; false if there is none. One that is stored stays as
// it is while the replicas cannot be read. While a replica lags, it may change soon.
func (r *reconciler) inForce(policy *v1alpha1.ExportPolicy, result engine.Result, seen observed) (metav1.Condition, bool) {
	c := metav1.Condition{Type: v1alpha1.ConditionInForce, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotCompiled}
	stored := meta.FindStatusCondition(policy.Status.Conditions, c.Type)
	switch {
	case r.Replicas == nil:
		return c, false
	case result.Err != nil:
		c.Message = "The policy is not in use; see the condition Compiled."
		return c, true
	case seen.replicas == nil && stored != nil:
		return *stored, true
	}
	total, lagging := len(seen.replicas), seen.replicas.Lagging(policy.Name, result.Digest)
	enforcing := fmt.Sprintf("%d/%d replicas enforce the policy as it is stored", total-len(lagging), total)
	switch {
	case seen.replicas == nil: // Reconcile is repeated because of the problem
		c.Status, c.Reason = metav1.ConditionUnknown, v1alpha1.ReasonReplicaUnknown
		c.Message = model.Bound(fmt.Sprintf("It is not known what the replicas enforce: %v", seen.problem), model.MaxEventNote)
	case len(lagging) == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonEveryReplica, enforcing+"."
	default:
		r.repeatIn(recountInterval)
		c.Reason, c.Message = v1alpha1.ReasonReplicaLags, fmt.Sprintf("%s; %s: not yet, see its log if that stays.", enforcing, decision.Some(lagging, maxLagging))
	}
	return c, true
}
